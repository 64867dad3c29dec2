"""GET /admin/state: one document for people and panels who watch the server. Not here: changing anything.

It holds ids, numbers and states; no prompt, no text, no key. Every key is always there, null where nothing is known.
Lists are cut so that it stays under MOST_BYTES: it is sent every second, also over slow lines.
"""

import asyncio
import itertools
import socket
import time
from typing import Any

from aiohttp import web

from appliance.api.admin_swaps import short
from appliance.api.query import known_only
from appliance.api.services import SERVICES, Services
from appliance.api.sse import dumps
from appliance.events import one_line
from appliance.machine.advice import Engine, warnings
from appliance.machine.gauges import Reading
from appliance.metrics import process_memory

API = 1
"""Counts up when a key changes its meaning."""
MOST_BYTES = 8 * 1024
SHOWN = 50
EVENTS = 5
WARNINGS = 8
ALIASES = 8
SENTENCE = 300
NAME_CHARS = 64
MODEL = ("architecture", "n_ctx", "n_ctx_train", "size", "load_mode", "type_k", "type_v")
WORKER = ("n_ctx", "type_k", "type_v", "batch_size", "ubatch_size", "threads", "isa", "kv_bytes", "weights_bytes",
          "load_s")  # fmt: skip
MEMORY = ("anon_bytes", "rss_bytes", "swap_bytes", "major_faults")
LEFT_OUT = ("beat", "type", "pid", "isa_reason", "cpu", "name")
"""Facts of the worker that are nobody's news every second."""
_sequence = itertools.count(1)


async def state(request: web.Request) -> web.Response:
    """Sequence number, time, engine, profile, model, queue, speeds, machine, counts, the latest events."""
    known_only(request)
    services = request.app[SERVICES]
    reading = await asyncio.to_thread(services.gauges.read, services.supervisor.pid)
    shown = document(services, reading)
    services.chronicle.warned(shown["warnings"])
    return web.Response(body=fitted(rounded(shown)), content_type="application/json")


def rounded(value: Any) -> Any:
    """Plain values without digits that nobody reads."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


def fitted(document: dict[str, Any]) -> bytes:
    """The document as bytes; the last waiting, then the last running requests are left out until it is small enough."""
    body = dumps(document)
    for name in ("waiting", "running", "events", "warnings"):
        rows: list[Any] = document[name]
        excess = len(body) - MOST_BYTES + 1
        if excess <= 0:
            break
        while excess > 0 and rows:
            excess -= len(dumps(rows.pop())) + 1
        body = dumps(document)
    return body


def document(services: Services, reading: Reading) -> dict[str, Any]:
    """Everything, before it is cut."""
    supervisor, swapper, queue = services.supervisor, services.swapper, services.dispatcher.snapshot()
    leaving = {"state": "draining", "reason": "the server is shutting down"}
    word, error = leaving if services.draining else swapper.state(), supervisor.error
    worker = _process(supervisor.pid)
    running = [_row(row) for row in queue["running"][:SHOWN]]
    current = swapper.current
    return {
        "api": API,
        "seq": next(_sequence),
        "time": time.time(),
        "version": services.version,
        "uptime_s": time.time() - services.started,
        "host": socket.gethostname(),
        "state": word["state"],
        "reason": _sentence(word["reason"]),
        "engine": supervisor.state,
        "progress": supervisor.progress,
        "error": None if error is None else {"code": error.code, "message": _sentence(error.message)},
        "hold": queue["hold"],
        "profile": _profile(services),
        "swap": None if current is None else short(current.json()),
        "last_swap": _last_swap(services),
        "model": {"id": services.model.id, "aliases": list(services.model.aliases[:ALIASES]), **dict.fromkeys(MODEL),
                  **services.model.meta},
        "worker": {"pid": supervisor.pid, "restarts": supervisor.restarts, **_worker(supervisor.info)},
        "slots": {"total": queue["slots"], "busy": len(queue["running"])},
        "running": running,
        "waiting": [_row(row) for row in queue["waiting"][:SHOWN]],
        "n_waiting": len(queue["waiting"]),
        "lanes": queue["lanes"],
        "held": queue["held"],
        "speeds": {**queue["speeds"], **_pace(services, queue["running"])},
        "ttft": services.metrics.percentiles(),
        "requests": dict(services.metrics.counts),
        "memory": {
            "api": _process("self"), "worker": worker, "kv_used_bytes": kv_used(services, queue["running"]),
            "machine": reading.machine, "major_faults_s": reading.major_faults_s, "disk_read_s": reading.disk_read_s,
        },
        "cpu": reading.cpu(),
        "thp": reading.thp,
        "swappiness": reading.swappiness,
        "batch": None,
        "warnings": alerts(services, reading),
        "events": [event.json() for event in services.events.last(EVENTS)],
    }  # fmt: skip


def alerts(services: Services, reading: Reading) -> list[str]:
    """What somebody should do something about, the worst first."""
    supervisor, waiting = services.supervisor, services.dispatcher.snapshot()["waiting"]
    engine = Engine(
        worker_swap=_process(supervisor.pid)["swap_bytes"] or 0, n_waiting=len(waiting),
        notes=tuple(str(note) for note in supervisor.info.get("notes") or ()),
        is_streaming=supervisor.info.get("load_mode") == "stream",
        disk_share=supervisor.recent.rates()["disk_share"],
    )  # fmt: skip
    return [one_line(text, SENTENCE) for text in warnings(reading, engine)[:WARNINGS]]


def kv_used(services: Services, running: list[dict[str, Any]]) -> int | None:
    """Bytes of the cache that hold positions of running requests; None without an engine that told its size."""
    info = services.supervisor.info
    n_bytes, n_ctx = info.get("kv_bytes"), info.get("n_ctx")
    if not isinstance(n_bytes, int) or not isinstance(n_ctx, int) or not n_ctx:
        return None
    return min(n_bytes, n_positions(running) * n_bytes // (n_ctx * int(info.get("n_parallel") or 1)))


def n_positions(running: list[dict[str, Any]]) -> int:
    return sum(row["n_prompt_done"] + row["n_generated"] for row in running)


def _profile(services: Services) -> dict[str, Any] | None:
    """The profile in force; None when the command line alone decides."""
    now = services.swapper.in_force
    if now.profile is None:
        return None
    return {
        "name": now.name, "rev": now.rev, "summary": _sentence(now.profile.summary),
        "since": services.swapper.since, "is_fallback": now.name == now.settings.fallback,
    }  # fmt: skip


def _last_swap(services: Services) -> dict[str, Any] | None:
    past = services.swapper.past()
    if not past:
        return None
    last, began, ended = past[-1], past[-1].get("started"), past[-1].get("ended")
    took = ended - began if isinstance(began, int | float) and isinstance(ended, int | float) else None
    shown = {key: last.get(key) for key in ("id", "from", "to", "state", "ended")}
    return {**shown, "took_s": took, "text": _sentence(last.get("text"))}


def _pace(services: Services, running: list[dict[str, Any]]) -> dict[str, Any]:
    """The speed of the answers under way together, and the tokens of each of the last seconds."""
    known = [row["tok_s"] for row in running if row.get("tok_s") is not None]
    history = services.metrics.pace.history(services.metrics.clock())
    return {"now_per_second": sum(known) if known else None if running else 0.0, "history": history}


def _worker(info: dict[str, Any]) -> dict[str, Any]:
    plain = {k: v for k, v in info.items() if k not in LEFT_OUT and isinstance(v, str | int | float)}
    return {**dict.fromkeys(WORKER), **plain}


def _process(pid: int | str | None) -> dict[str, Any]:
    facts = process_memory(pid) if pid is not None else {}
    return {name: facts.get(name) for name in MEMORY}


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """A request; while it is held, its model is that of the profile before."""
    return {**row, "model": one_line(row["model"], NAME_CHARS)}


def _sentence(text: str | None) -> str | None:
    return None if text is None else one_line(text, SENTENCE)
