"""A whole service for a test: real sockets, queue and worker process around a scripted engine. Not here: tests.

The text side (tokenizer, chat template) is a tiny model's, the answers are the script's.
"""

import contextlib
import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from appliance.api.app import make_app
from appliance.api.serve import Prepared, bind, listening, running
from appliance.api.services import ServedModel, Services
from appliance.settings import resolve
from engine.gguf.reader import read_gguf
from engine.text import open_text
from tests.appliance.scripted import script
from tests.tiny import tiny_llama

N_CTX = 512


@dataclass
class Service:
    """A running service and a client that holds its keys."""

    services: Services
    port: int
    client: aiohttp.ClientSession
    user: str
    admin: str

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
        """Status, JSON and headers; with the user's key unless `Authorization` says otherwise."""
        sent = {"Authorization": f"Bearer {self.user}", "Content-Type": "application/json", **headers}
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        data = io.BytesIO(raw) if len(raw) > 1 << 20 else raw or None
        sent = {name.replace("_", "-"): value for name, value in sent.items() if value}
        async with self.client.request(method, self.base + path, data=data, headers=sent) as answer:
            raw = await answer.read()
            return answer.status, json.loads(raw) if raw else None, answer.headers

    async def chat(self, **fields: Any) -> tuple[int, Any, Any]:
        return await self.call("POST", "/v1/chat/completions", ask(**fields))

    async def events(self, path: str = "/v1/chat/completions", **fields: Any) -> list[Any]:
        """The events of a stream in order: objects, "[DONE]", and comments as ": text"."""
        body = json.dumps({**(ask(**fields) if "chat" in path else fields), "stream": True})
        headers = {"Authorization": f"Bearer {self.user}", "Content-Type": "application/json"}
        async with self.client.post(self.base + path, data=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            return events(await answer.text())


def ask(**fields: Any) -> dict[str, Any]:
    """A chat body; `fields` over a short default."""
    return {"messages": [{"role": "user", "content": "hi"}], **fields}


def events(text: str) -> list[Any]:
    found: list[Any] = []
    for block in text.split("\n\n"):
        if block.startswith("data: "):
            data = block.removeprefix("data: ")
            found.append(data if data == "[DONE]" else json.loads(data))
        elif block:
            found.append(block)
    return found


@contextlib.asynccontextmanager
async def service(
    folder: Path, *, wait: bool = True, options: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Service]:
    """Start one in `folder` with a scripted engine's `options`; `settings` as flags. Ready unless `wait` is False."""
    found = resolve({"data_dir": str(folder / "data"), **settings}, {}).settings
    text = open_text(read_gguf(tiny_llama(folder / "tiny.gguf")))
    model = ServedModel("tiny/model:q4", 1_700_000_000, {"n_ctx": N_CTX}, aliases=("small",))
    prepared = Prepared(model, text, N_CTX, script(n_ctx=N_CTX, **(options or {})))
    with bind("127.0.0.1", 0) as door:
        port = door.getsockname()[1]
        async with running(found, prepared) as services, listening(make_app(services), door):
            lines = [line.split() for line in (folder / "data" / "keys").read_text().splitlines()]
            keys = {words[0]: words[1] for words in lines if words[0] != "#"}
            if wait:
                await services.supervisor.ready()  # type: ignore[attr-defined]
            async with aiohttp.ClientSession() as client:
                yield Service(services, port, client, keys["user"], keys["admin"])
