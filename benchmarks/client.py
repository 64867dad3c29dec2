"""A streaming chat client that costs next to nothing: asyncio, one connection, a time for every event.

The client shares the machine with the server it measures; a heavy one would take its CPU. Not here: what is measured.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Streamed:
    """One answer: seconds to its first and last piece and to its end, and the tokens the server says it made."""

    first_s: float
    last_s: float
    end_s: float
    n_prompt: int
    n_tokens: int
    text: str

    @property
    def tokens_per_second(self) -> float:
        """Between the first and the last piece: without prefill and connection."""
        return (self.n_tokens - 1) / (self.last_s - self.first_s)


async def stream_chat(url: str, body: dict[str, Any], timeout_s: float = 300.0) -> Streamed:
    """POST /v1/chat/completions as a stream; RuntimeError with the server's words when it answers anything else."""
    return await asyncio.wait_for(_stream(url, body), timeout_s)


async def _stream(url: str, body: dict[str, Any]) -> Streamed:
    place = urlsplit(url)
    data = json.dumps(body | {"stream": True, "stream_options": {"include_usage": True}}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    start = time.perf_counter()
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        writer.write(head.encode() + data)
        status = (await reader.readline()).decode()
        while (await reader.readline()).strip():
            pass
        if " 200 " not in status:
            raise RuntimeError(f"{status.strip()}: {(await reader.read(2000)).decode(errors='replace')}")
        times, pieces = [], []
        usage: dict[str, int] = {}
        async for event in _events(reader):
            if "error" in event:
                raise RuntimeError(f"the stream ended with {event['error']}")
            usage = event.get("usage") or usage
            piece = event["choices"][0]["delta"].get("content") if event["choices"] else None
            if piece:
                times.append(time.perf_counter() - start)
                pieces.append(piece)
        end = time.perf_counter() - start
        text = "".join(pieces)
        return Streamed(times[0], times[-1], end, usage["prompt_tokens"], usage["completion_tokens"], text)
    finally:
        writer.close()


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """The JSON of each `data:` line of a chunked body, until [DONE]."""
    rest = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        rest += (await reader.readexactly(size + 2))[:-2]
        *lines, rest = rest.split(b"\n")
        for line in lines:
            if line.startswith(b"data: [DONE]"):
                return
            if line.startswith(b"data: "):
                yield json.loads(line[6:])
