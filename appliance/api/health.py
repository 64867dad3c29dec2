"""Probes: /livez (the process answers), /health and /readyz (it can serve), /metrics. Not here: what is counted.

During a swap requests are taken and wait, so nothing is wrong; but a machine that asks before it sends one should send
it elsewhere or later, hence 503 with a time.
"""

import os
from collections.abc import Iterable
from typing import Any

from aiohttp import web

from appliance.api.admin import n_positions
from appliance.api.admin_memory import compute_ns, spent
from appliance.api.errors import Draining, EndpointDisabled, error_response
from appliance.api.services import SERVICES, Services
from appliance.machine.pressure import read_pressure
from appliance.metrics import CONTENT_TYPE, Live, process_memory
from engine.errors import ColibriError, EngineDown, ModelLoading

LEAST_DISK_BYTES = 16 * 1024 * 1024
LOAD_RETRY_S = 2
"""A probe may ask again so soon: answering costs nothing."""
SWAP_RETRY_S = 5


async def livez(request: web.Request) -> web.Response:
    """200 as long as the event loop runs; the engine may be loading, busy or gone."""
    return web.json_response({"status": "ok"})


async def health(request: web.Request) -> web.Response:
    """200 `{"status": "ok"}` when the model is loaded, however busy it is; else 503 with the reason."""
    reason = why_not(request.app[SERVICES])
    return web.json_response({"status": "ok"}) if reason is None else error_response(reason)


async def readyz(request: web.Request) -> web.Response:
    """Like /health, and the queue has a place and the data folder some room."""
    services = request.app[SERVICES]
    reason = why_not(services) or _too_full(services)
    return web.json_response({"status": "ok"}) if reason is None else error_response(reason)


async def metrics(request: web.Request) -> web.Response:
    services = request.app[SERVICES]
    if not services.settings.metrics:
        raise EndpointDisabled("this server was started with metrics off; start it without --no-metrics")
    return web.Response(body=services.metrics.page(), headers={"Content-Type": CONTENT_TYPE})


def why_not(services: Services) -> ColibriError | None:
    """The reason that no answer can begin now, in words fit for anybody."""
    if services.draining:
        return Draining("the server is shutting down", retry_after_s=10)
    word, engine = services.swapper.state()["state"], services.supervisor.state
    if word in ("draining", "swapping"):
        return ModelLoading("another profile is being put in force", retry_after_s=SWAP_RETRY_S, state=word)
    if word in ("crashed", "stopped"):
        return EngineDown("the engine is down; the server's log and /admin/state say why", retry_after_s=30)
    if engine == "ready":
        return None
    progress = services.supervisor.progress
    return ModelLoading("Loading model", retry_after_s=LOAD_RETRY_S, state=engine, progress=progress)


def _too_full(services: Services) -> ColibriError | None:
    lane = services.dispatcher.snapshot()["lanes"]["interactive"]
    if lane["limit"] and lane["waiting"] >= lane["limit"]:
        return _NotReady(f"all {lane['limit']} places of the queue are taken", retry_after_s=LOAD_RETRY_S)
    try:
        disk = os.statvfs(services.settings.data_dir)
    except OSError:
        return _NotReady("the data folder cannot be reached", retry_after_s=30)
    if disk.f_bavail * disk.f_frsize < LEAST_DISK_BYTES:
        return _NotReady(f"the data folder has less than {LEAST_DISK_BYTES} bytes left", retry_after_s=30)
    return None


class _NotReady(EngineDown):
    code = "not_ready"


Values = dict[tuple[tuple[str, str], ...], float]


def _weights(services: Services) -> Iterable[Live]:
    """Where the weights are, and what reading them takes."""
    info, pressure = services.supervisor.info, read_pressure()
    places = {name: info.get(f"{name}_bytes") for name in ("pinned", "streamed", "ring", "expert_cache")}
    known: Values = {(("place", name),): float(n) for name, n in places.items() if n is not None}
    if known:
        yield Live("colibri_weights_bytes", "Weights kept, read for each step, and what is set aside for both", known)
    if info.get("budget_bytes"):
        yield Live("colibri_memory_budget_bytes", "Memory that the model was planned into", {(): info["budget_bytes"]})
    plan = {row[0]: row[1] for row in info.get("plan") or ()}
    if (floor := plan.get("cycle_floor_bytes")) is not None:
        in_use = (info.get("experts") or {}).get("used_bytes", info.get("expert_cache_bytes", 0))
        yield Live("colibri_expert_cache_bytes", "Memory of the cache of experts that is in use now", {(): in_use})
        yield Live("colibri_expert_cache_cycle_floor_bytes", "What one token uses of experts",
                   {(): floor})  # fmt: skip
    if sums := spent(services):
        kinds = {"dense": sums["read_bytes"] - sums["expert_bytes"], "expert": sums["expert_bytes"]}
        yield Live("colibri_disk_read_bytes_total", "Weights read from disk by our own reads",
                   {(("kind", kind),): float(n) for kind, n in kinds.items()}, "counter")  # fmt: skip
        yield Live("colibri_disk_read_seconds_total", "Time in those reads, all readers together",
                   {(): sums["read_ns"] / 1e9}, "counter")  # fmt: skip
        parts = {"compute": compute_ns(sums), "disk": sums["disk_ns"], "sample": sums["sample_ns"]}
        yield Live("colibri_token_time_seconds_total", "Time of the engine's steps by what it went into",
                   {(("part", part),): ns / 1e9 for part, ns in parts.items()}, "counter")  # fmt: skip
        yield Live("llamacpp:n_decode_total", "Steps of the engine", {(): sums["n_steps"]}, "counter")
        for name in ("expert_hits", "expert_misses"):
            series = f"colibri_expert_cache_{name.removeprefix('expert_')}_total"
            yield Live(series, "Experts found in the cache, or not", {(): sums[name]}, "counter")
    told: Values = {(("resource", name.partition("_")[0]), ("who", name.partition("_")[2])): share
                    for name, share in pressure.shares().items() if share is not None}  # fmt: skip
    if told:
        yield Live("colibri_pressure_percent", "Share of ten seconds that some or all tasks waited", told)
    events: Values = {(("event", name),): float(n) for name, n in pressure.events().items() if n is not None}
    if events:
        yield Live("colibri_memory_events_total", "Times our group met its memory limits", events, "counter")


def live(services: Services) -> Iterable[Live]:
    """Figures for /metrics that are read when somebody asks."""
    model = ("model_name", services.model.id)
    state = services.dispatcher.snapshot()
    running, waiting = len(state["running"]), len(state["waiting"])
    yield Live("llamacpp:requests_processing", "Answers under way", {(): running})
    yield Live("llamacpp:requests_deferred", "Requests that wait", {(): waiting})
    yield Live("colibri_num_requests_running", "Answers under way", {(model,): running})
    yield Live("colibri_num_requests_waiting", "Requests that wait", {(model,): waiting})
    waits = [one["waited_ms"] for one in state["waiting"]]
    yield Live("colibri_queue_wait_seconds", "How long the one that waits longest has waited",
               {(): max(waits, default=0) / 1000})  # fmt: skip
    rows = services.batches.figures()
    yield Live("colibri_batch_rows", "Rows of the batch that works, by state",
               {(("state", name),): rows[name] for name in ("waiting", "completed", "failed")})  # fmt: skip
    if rows["eta_s"] is not None:
        yield Live("colibri_batch_eta_seconds", "Forecast until the batch that works is done", {(): rows["eta_s"]})
    yield Live("colibri_requests_held", "Requests that wait for a swap to end", {(): state["held"]["n"]})
    info: dict[str, Any] = services.supervisor.info
    profile = services.swapper.in_force.name
    if profile:
        is_up = services.supervisor.state == "ready" and services.swapper.current is None
        yield Live("colibri_profile_active", "1 for the profile that serves, 0 while nobody does",
                   {(("profile", profile),): is_up})  # fmt: skip
    if info.get("n_ctx"):
        used = n_positions(state["running"]) / info["n_ctx"]
        yield Live("colibri_kv_cache_usage_perc", "Share of the context that running answers fill, 1 is all",
                   {(model,): min(1.0, used)})  # fmt: skip
    yield Live("colibri_model_ready", "1 when the model is loaded", {(model,): services.supervisor.state == "ready"})
    yield Live("colibri_worker_restarts_total", "Engine processes that had to be replaced",
               {(): services.supervisor.restarts}, "counter")  # fmt: skip
    yield from _weights(services)
    build = {"version": services.version, "isa": info.get("isa", ""), "model_sha": info.get("model_digest", "")}
    yield Live("colibri_build_info", "1; what runs here", {tuple((k, str(v)) for k, v in build.items()): 1})
    pids: dict[str, int | str | None] = {"api": "self", "worker": services.supervisor.pid}
    memory = {name: process_memory(pid) for name, pid in pids.items() if pid is not None}
    for field, series, words, kind in (
        ("anon_bytes", "colibri_memory_used_bytes", "Anonymous memory by process", "gauge"),
        ("swap_bytes", "colibri_swap_bytes", "Swapped out memory by process", "gauge"),
        ("major_faults", "colibri_major_faults_total", "Pages that had to be read from disk", "counter"),
    ):
        values: dict[tuple[tuple[str, str], ...], float] = {
            (("pool", name),): facts[field] for name, facts in memory.items() if field in facts
        }
        if values:
            yield Live(series, words, values, kind)
