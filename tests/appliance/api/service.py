"""A whole service for a test: real sockets, queue and worker process around a scripted engine. Not here: tests.

The text side (tokenizer, chat template) is a tiny model's, the answers are the script's.
"""

import contextlib
import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from appliance.api.app import make_app
from appliance.api.serve import First, bind, listening, running
from appliance.api.services import Services
from appliance.chat_template import choose
from appliance.life import WorkerSpec
from appliance.machine.host import read_machine
from appliance.profiles import Profile, ProfileStore
from appliance.settings import Settings, resolve
from appliance.swaps.journal import Journal
from appliance.swaps.prepare import Prepared, ServedModel, prepare
from engine.gguf.reader import read_gguf
from engine.planner import Machine
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
    folder: Path,
    *,
    wait: bool = True,
    options: dict[str, Any] | None = None,
    profiles: dict[str, dict[str, Any]] | None = None,
    scripts: dict[str, dict[str, Any]] | None = None,
    profile: str | None = None,
    worker: WorkerSpec | None = None,
    n_ctx: int = N_CTX,
    **settings: Any,
) -> AsyncIterator[Service]:
    """Start one in `folder` with a scripted engine's `options`; `settings` as flags. Ready unless `wait` is False.

    `profiles` are written into its data folder (name -> values; groups as dicts); a swap to one starts a scripted
    engine with the options of `scripts[name]`, which may be changed while it runs. `profile` is the first one.
    `worker` takes the scripted engine's place: a real one.
    """
    data = folder / "data"
    (data / "profiles").mkdir(parents=True, exist_ok=True)
    for name, values in (profiles or {}).items():
        (data / "profiles" / f"{name}.yaml").write_text(profile_text(name, values))
    flags = {"data_dir": str(data), **settings}
    if not {"model", "default_model"} & flags.keys():
        flags["default_model"] = str(tiny_llama(folder / "tiny.gguf"))
    found = resolve(flags, {}).settings

    def scripted(
        settings: Settings, machine: Machine, profile: Profile | None = None, leaving: int | None = None
    ) -> Prepared:
        """The real plan, with a scripted worker in place of the real one."""
        made = prepare(settings, machine, profile, leaving)
        own = {"n_ctx": made.n_ctx, **((scripts or {}).get(made.name) or {})}
        worker = replace(script(**own), model=made.worker.model)
        return replace(made, worker=worker, promised={"n_ctx": made.n_ctx})

    store, journal = ProfileStore(data), Journal(data)
    if profile is None:
        text = open_text(read_gguf(found.model_path()))
        choose(text, found, "llama")
        model = ServedModel("tiny/model:q4", 1_700_000_000, {"n_ctx": n_ctx}, aliases=("small",))
        first = Prepared(found, model, text, n_ctx, worker or script(n_ctx=n_ctx, **(options or {})))
    else:
        loaded = store.load(profile)
        first = scripted(resolve(flags, {}, {**loaded.values, "name": profile}).settings, read_machine(), loaded)
    begin = First(first, store, journal, lambda values: resolve(flags, {}, values), prepare=scripted)
    with bind("127.0.0.1", 0) as door:
        port = door.getsockname()[1]
        async with running(begin) as services, listening(make_app(services), door):
            lines = [line.split() for line in (data / "keys").read_text().splitlines()]
            keys = {words[0]: words[1] for words in lines if words[0] != "#"}
            if wait:
                await services.supervisor.ready()  # type: ignore[attr-defined]
            async with aiohttp.ClientSession() as client:
                yield Service(services, port, client, keys["user"], keys["admin"])


def profile_text(name: str, values: dict[str, Any]) -> str:
    """YAML of a profile; values that are dicts are groups."""
    lines = [f"name: {name}"]
    for key, value in values.items():
        if isinstance(value, dict):
            lines += [f"{key}:", *(f"  {inner}: {json.dumps(one)}" for inner, one in value.items())]
        else:
            lines.append(f"{key}: {json.dumps(value)}")
    return "\n".join(lines) + "\n"
