"""GET /admin/state: one document for people and panels who watch the server. Not here: changing anything.

It holds ids, numbers and states; no prompt, no text, no key. Lists are cut so that it stays small.
"""

import itertools
import time
from typing import Any

from aiohttp import web

from appliance.api.services import SERVICES
from appliance.metrics import process_memory

SHOWN = 50
_sequence = itertools.count(1)


async def state(request: web.Request) -> web.Response:
    """Sequence number, time, engine, model, queue, speeds, memory, counts."""
    services = request.app[SERVICES]
    supervisor, queue = services.supervisor, services.dispatcher.snapshot()
    beat = supervisor.info.get("beat")
    facts = {k: v for k, v in supervisor.info.items() if k not in ("beat", "type") and isinstance(v, str | int | float)}
    error = supervisor.error
    document: dict[str, Any] = {
        "seq": next(_sequence),
        "time": time.time(),
        "version": services.version,
        "uptime_s": round(time.time() - services.started, 1),
        "state": "draining" if services.draining else supervisor.state,
        "progress": supervisor.progress,
        "error": None if error is None else {"code": error.code, "message": error.message},
        "profile": None,
        "model": {"id": services.model.id, "aliases": list(services.model.aliases), **services.model.meta},
        "worker": {"pid": supervisor.pid, "restarts": supervisor.restarts, **facts, "beat": beat},
        "slots": queue["slots"],
        "running": queue["running"][:SHOWN],
        "waiting": queue["waiting"][:SHOWN],
        "n_waiting": len(queue["waiting"]),
        "lanes": queue["lanes"],
        "speeds": queue["speeds"],
        "ttft": services.metrics.percentiles(),
        "memory": {
            "api": process_memory(),
            "worker": process_memory(supervisor.pid) if supervisor.pid is not None else {},
        },
        "requests": dict(services.metrics.counts),
    }
    return web.json_response(document)
