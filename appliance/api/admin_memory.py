"""GET /admin/memory and GET /admin/residency: what takes the memory, what is read from disk, where each weight lives.

Not here: the map itself (appliance/residency.py), counting (engine/spent.py), the machine's numbers (gauges.py).

    /admin/memory      plan and budget, processes, machine, pressure, what the engine has used up since its load
                       (sums, and means of a token) and in the last seconds (rates)
    /admin/residency   ?rows= &cols= &by=tensor|expert: cells of 0 to 255, binned to the reader's size, and as many of
                       heat, which experts alone have
"""

import asyncio
from pathlib import Path
from typing import Any

from aiohttp import web

from appliance.api.admin import alerts, kv_used, rounded
from appliance.api.admin_swaps import answer
from appliance.api.query import known_only, whole, word
from appliance.api.services import SERVICES, Services
from appliance.metrics import process_memory
from appliance.residency import BY, Experts, Home, Scanner, map_of
from engine.errors import EngineDown

ROWS, COLUMNS, MOST = 24, 64, 512
SCANNER = web.AppKey("scanner", Scanner)
WEIGHTS = ("weights_bytes", "pinned_bytes", "streamed_bytes", "ring_bytes", "expert_cache_bytes")
ROW = ("name", "value", "reason", "provenance")


async def memory(request: web.Request) -> web.Response:
    """One document; every key is always there, null where nothing is known."""
    known_only(request)
    services = request.app[SERVICES]
    reading = await asyncio.to_thread(services.gauges.read, services.supervisor.pid)
    info, running = services.supervisor.info, services.dispatcher.snapshot()["running"]
    pids = (("api", "self"), ("worker", services.supervisor.pid))
    sums, in_use = spent(services), (info.get("experts") or {}).get("used_bytes")
    found = {
        "model": services.model.id, "load_mode": info.get("load_mode"),
        "budget_bytes": info.get("budget_bytes"), "private_bytes": info.get("private_bytes"),
        "plan": [dict(zip(ROW, row, strict=True)) for row in info.get("plan") or ()],
        "weights": {name: info.get(name) for name in WEIGHTS} | {"expert_cache_used_bytes": in_use},
        "kv": {"bytes": info.get("kv_bytes"), "used_bytes": kv_used(services, running)},
        "processes": {name: process_memory(pid) if pid is not None else {} for name, pid in pids},
        "machine": reading.machine, "pressure": reading.pressure.json(),
        "major_faults_s": reading.major_faults_s, "disk_read_s": reading.disk_read_s,
        "spent": sums, "token": per_token(sums), "rates": services.supervisor.recent.rates(),
        "warnings": alerts(services, reading),
    }  # fmt: skip
    return answer(rounded(found))


async def residency(request: web.Request) -> web.Response:
    """The map of the model that is loaded; 503 while there is none."""
    known_only(request, "rows", "cols", "by")
    rows, columns = whole(request, "rows", ROWS, 1, MOST), whole(request, "cols", COLUMNS, 1, MOST)
    services = request.app[SERVICES]
    info = services.supervisor.info
    homes = [Home(*row) for row in info.get("homes") or ()]
    has_experts = any(home.parts > 1 for home in homes)
    by = word(request, "by", BY[has_experts], BY)
    if not homes:
        raise EngineDown("no model is loaded now, so there is no map of it; ask again when it serves", retry_after_s=5)
    scanner, path = request.app[SCANNER], Path(services.settings.model_path())
    experts = Experts.read(info.get("experts"))
    scan = await asyncio.to_thread(scanner.read, path, homes, (str(path), info.get("pid")), experts)
    found = map_of(scan, by, rows or ROWS, columns or COLUMNS)
    head = {"model": services.model.id, "load_mode": info.get("load_mode")}
    times = {"scan_age_s": scanner.age_s(scan), "scan_cost_ms": scan.cost_ms}
    return answer(rounded({**head, **times, **found}))


def spent(services: Services) -> dict[str, int] | None:
    """What the engine process has used up since its load, as of its last beat; None before that."""
    found = (services.supervisor.info.get("beat") or {}).get("spent")
    return found if isinstance(found, dict) else None


def compute_ns(sums: dict[str, int]) -> int:
    """What is left of the steps' time."""
    return max(0, sums["step_ns"] - sums["disk_ns"] - sums["sample_ns"])


def per_token(sums: dict[str, int] | None) -> dict[str, Any]:
    """Means over all tokens since the load, prompts' time included."""
    n = (sums or {}).get("n_tokens")
    if not sums or not n:
        return dict.fromkeys(("compute_ms", "disk_ms", "sample_ms", "read_bytes", "reads"))
    return {
        "compute_ms": compute_ns(sums) / n / 1e6, "disk_ms": sums["disk_ns"] / n / 1e6,
        "sample_ms": sums["sample_ns"] / n / 1e6, "read_bytes": sums["read_bytes"] // n, "reads": sums["n_reads"] / n,
    }  # fmt: skip
