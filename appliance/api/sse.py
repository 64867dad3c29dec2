"""Server-sent events: headers, data, comments, errors, the end; clients too slow to read. Not here: chunks.

A stream that breaks off ends with an error event and without [DONE], so that no client can take it for a whole answer.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from appliance.api.errors import error_object
from appliance.request import Queued
from engine.errors import ColibriError

HEARTBEAT_S = 10.0
"""A comment at least that often: proxies commonly cut a silent connection after 60 s, some after 15."""
STALL_S = 30.0
"""A client that takes nothing for so long is dropped; its answer is cancelled."""
HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class ClientStalled(ConnectionError):
    """The client is there and does not read."""


class EventStream:
    """One response of events; nothing is sent before `open`."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._response = web.StreamResponse(headers=HEADERS)
        self._last = 0.0
        self._position: int | None = None
        self.is_open = False

    async def open(self) -> None:
        """Send the headers, once; from here on an error is an event."""
        if not self.is_open:
            self.is_open = True
            await self._response.prepare(self._request)
            self._touch()

    async def send(self, event: dict[str, Any], *, name: str = "", event_id: str = "") -> None:
        """One `data:` event, opening the stream first; `name` and `event_id` are of ours and hold no line break."""
        head = (f"id: {event_id}\n" if event_id else "") + (f"event: {name}\n" if name else "")
        await self._write(head.encode() + b"data: " + dumps(event) + b"\n\n")

    async def comment(self, text: str) -> None:
        """What clients skip and proxies count as a sign of life."""
        await self._write(f": {text}\n\n".encode())

    async def beat(self, place: Queued | None) -> None:
        """A comment, when nothing was sent for HEARTBEAT_S or the place in the queue is another; it tells that place,
        if there is one, and about when the answer begins, if that is known."""
        position = place.position if place is not None else self._position
        is_due = not self.is_open or asyncio.get_running_loop().time() - self._last >= HEARTBEAT_S
        if is_due or position != self._position:
            self._position = position
            await self.comment("still working" if place is None else words(place))

    async def done(self) -> web.StreamResponse:
        """End a whole answer."""
        await self._write(b"data: [DONE]\n\n")
        return await self.end()

    async def fail(self, error: ColibriError) -> web.StreamResponse:
        """End a broken one: the error event is the last."""
        await self._write(b"data: " + dumps({"error": error_object(error)}) + b"\n\n")
        return await self.end()

    async def end(self) -> web.StreamResponse:
        """End a stream that has no last event."""
        async with patience(self._request):
            await self._response.write_eof()
        return self._response

    async def _write(self, data: bytes) -> None:
        await self.open()
        async with patience(self._request):
            await self._response.write(data)
        self._touch()

    def _touch(self) -> None:
        self._last = asyncio.get_running_loop().time()


@asynccontextmanager
async def patience(request: web.Request) -> AsyncIterator[None]:
    """Waits STALL_S for a write to be taken, then cuts the connection."""
    try:
        async with asyncio.timeout(STALL_S):
            yield
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ClientStalled(f"the client read nothing for {STALL_S:.0f} s") from None


def words(place: Queued) -> str:
    """A place in the queue, and the seconds to go as far as they are known."""
    eta = "" if place.eta_ms is None else f", about {math.ceil(place.eta_ms / 1000)} s to go"
    return f"number {place.position} in the queue{eta}"


def dumps(value: Any) -> bytes:
    """Strict JSON in UTF-8 without spaces."""
    return _encode(value).encode()
