"""A service of scripted states on 127.0.0.1, for what a real one cannot be brought to: odd answers, silence, failures.

`Fake.state` is the document of GET /admin/state (all keys of the contract; test_contract.py compares them with the
real service's). `Fake.answers[("POST", "/admin/swap")]` is an object, or a function of the request giving (status,
object). Every request is kept in `Fake.asked`.
"""

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from aiohttp import web

GIB = 1 << 30
STATE: dict[str, Any] = {
    "api": 1, "seq": 812, "time": 1790000000.0, "version": "0.1.0", "uptime_s": 310.2, "host": "edge-07",
    "state": "ready", "reason": None, "engine": "ready", "progress": None, "error": None, "hold": False,
    "profile": {"name": "quick-verify", "rev": 14, "summary": "short answers", "since": 1789999700.0,
                "is_fallback": False},
    "swap": None,
    "last_swap": {"id": "0042", "from": "long-doc", "to": "quick-verify", "state": "ready", "ended": 1789999700.0,
                  "took_s": 11.8,
                  "text": "long-doc -> quick-verify ok 11.8 s (drain 3.1 stop 0.6 start 1.4 warm 6.1 check 0.6)"},
    "model": {"id": "qwen3-4b-q4_k_m", "aliases": [], "architecture": "qwen3", "n_ctx": 8192, "n_ctx_train": 40960,
              "size": 2501000000, "load_mode": "resident", "type_k": "q8_0", "type_v": "q8_0"},
    "worker": {"pid": 41, "restarts": 0, "n_ctx": 8192, "type_k": "q8_0", "type_v": "q8_0", "batch_size": 512,
               "ubatch_size": 256, "threads": 16, "isa": "vnni", "kv_bytes": int(2.39 * GIB),
               "weights_bytes": int(2.33 * GIB), "load_s": 0.4},
    "slots": {"total": 4, "busy": 3},
    "running": [
        {"id": "chatcmpl-10a4-0", "lane": "interactive", "model": "qwen3-4b-q4_k_m", "state": "running",
         "phase": "decode", "n_prompt": 1024, "n_prompt_done": 1024, "n_generated": 154, "max_tokens": 256,
         "running_ms": 14000,
         "queue_ms": 12, "ttft_ms": 340, "tok_s": 11.7, "eta_ms": 9000},
        {"id": "chatcmpl-10a6-0", "lane": "batch", "model": "qwen3-4b-q4_k_m", "state": "running",
         "phase": "prefill",
         "n_prompt": 6144, "n_prompt_done": 2519, "n_generated": 0, "max_tokens": 128, "running_ms": 9000,
         "queue_ms": 40, "ttft_ms": None, "tok_s": None, "eta_ms": 33000},
    ],
    "waiting": [
        {"id": "chatcmpl-10a7-0", "lane": "interactive", "model": "qwen3-4b-q4_k_m", "position": 1, "eta_ms": 9000,
         "waited_ms": 2100, "n_prompt": 220},
    ],
    "n_waiting": 3,
    "lanes": {"interactive": {"waiting": 3, "limit": 16}, "fallback": {"waiting": 0, "limit": 16},
              "batch": {"waiting": 0, "limit": 32}},
    "held": {"n": 0, "oldest_ms": None, "refused": 0},
    "speeds": {"prompt_per_second": 212.0, "predicted_per_second": 23.4, "typical_n": 128.0, "now_per_second": 23.4,
               "history": [float(n % 24) for n in range(60)]},
    "ttft": {"p50_ms": 340, "p95_ms": 1210},
    "requests": {"finished": 1284, "failed": 2, "cancelled": 1, "refused": 0},
    "memory": {
        "api": {"anon_bytes": 90 << 20, "rss_bytes": 120 << 20, "swap_bytes": 0, "major_faults": 0},
        "worker": {"anon_bytes": 3 * GIB, "rss_bytes": 5 * GIB, "swap_bytes": 0, "major_faults": 12},
        "kv_used_bytes": int(0.74 * GIB),
        "machine": {"total": int(62.5 * GIB), "available": 50 * GIB, "free": int(35.6 * GIB), "cached": int(18.1 * GIB),
                    "limit": 48 * GIB, "limit_used": 6 * GIB, "swap_total": 8 * GIB, "swap_used": 0},
        "major_faults_s": 0.0, "disk_read_s": 0.0,
    },
    "cpu": {"cores": 32, "load1": 16.2, "nodes": [
        {"node": 0, "cpus": 16, "util": 0.78, "mhz": 2900, "governor": "performance"},
        {"node": 1, "cpus": 16, "util": 0.04, "mhz": 1200, "governor": "performance"}],
        "temp_c": 71.0, "throttled": False, "quota": None},
    "thp": "madvise", "swappiness": 10, "batch": None, "warnings": [],
    "events": [
        {"id": "b-1", "time": 1789999700.0, "kind": "swap", "level": "info",
         "text": "long-doc -> quick-verify ok 11.8 s (drain 3.1 stop 0.6 start 1.4 warm 6.7)"},
        {"id": "b-2", "time": 1789999900.0, "kind": "request", "level": "warning", "text": "a request was cut off"},
    ],
}  # fmt: skip


class Asked(NamedTuple):
    """One request as it came."""

    method: str
    path: str
    body: Any
    headers: dict[str, str]
    query: dict[str, str]


class Fake:
    """`start` it and read `url`; `stop` it and start it again on the same port."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = copy.deepcopy(STATE)
        self.answers: dict[tuple[str, str], Any | Callable[[Asked], tuple[int, Any]]] = {}
        self.asked: list[Asked] = []
        self.events: list[dict[str, Any]] = []
        self.n_listening = 0
        self.hangs = False
        self.port = 0
        self._runner: web.AppRunner | None = None
        self._changed = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._any)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            self._changed.set()
            await self._runner.cleanup()
            self._runner = None

    def tell(self, kind: str, text: str, level: str = "info", **facts: Any) -> None:
        """One more event for those who listen."""
        n = len(self.events) + 3
        event = {"id": f"b-{n}", "time": 1790000000.0 + n, "kind": kind, "level": level, "text": text}
        self.events.append(event | facts)
        self._changed.set()

    def bodies(self, method: str, path: str) -> list[Any]:
        """The bodies of all requests to a path."""
        return [a.body for a in self.asked if (a.method, a.path) == (method, path)]

    async def _any(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw
        asked = Asked(request.method, request.path, body, dict(request.headers), dict(request.query))
        self.asked.append(asked)
        while self.hangs:
            await asyncio.sleep(0.02)
        answer = self.answers.get((asked.method, asked.path))
        if answer is None and asked.path == "/admin/events":
            return await self._stream(request)
        if answer is None and asked.path == "/admin/state":
            answer = self.state
        if answer is None:
            error = {"message": f"no route {asked.path}", "type": "not_found", "param": None, "code": "not_found"}
            return web.json_response({"error": error}, status=404)
        status, document = answer(asked) if callable(answer) else (200, answer)
        if isinstance(document, bytes):
            return web.Response(body=document, status=status)
        return web.json_response(document, status=status) if document is not None else web.Response(status=status)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        last = request.headers.get("Last-Event-ID", "")
        ids = [event["id"] for event in self.events]
        at = ids.index(last) + 1 if last in ids else 0
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        self.n_listening += 1
        try:
            while self._runner is not None:
                for event in self.events[at:]:
                    data = json.dumps(event)
                    await answer.write(f"id: {event['id']}\nevent: {event['kind']}\ndata: {data}\n\n".encode())
                at = len(self.events)
                self._changed.clear()
                await self._changed.wait()
        finally:
            self.n_listening -= 1
        return answer
