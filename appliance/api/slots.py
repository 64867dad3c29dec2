"""GET /slots and /props in llama-server's shape: what computes now, and what is served. Not here: /admin/state.

No prompt, no answer and no path is told; a slot holds numbers and the id of its answer.
"""

from dataclasses import asdict
from typing import Any

from aiohttp import web

from appliance.api.services import SERVICES, Services

PARAMS = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "repeat_last_n", "presence_penalty",
    "frequency_penalty", "seed",
)  # fmt: skip


async def slots(request: web.Request) -> web.Response:
    """One object for each slot, busy ones first; none before the engine is ready."""
    services = request.app[SERVICES]
    queue, n_ctx = services.dispatcher.snapshot(), services.admission.n_ctx
    running = queue["running"]
    told = [_slot(i, n_ctx, running[i] if i < len(running) else None) for i in range(max(queue["slots"], len(running)))]
    return web.json_response(told)


def _slot(index: int, n_ctx: int, job: dict[str, Any] | None) -> dict[str, Any]:
    slot: dict[str, Any] = {"id": index, "n_ctx": n_ctx, "is_processing": job is not None}
    if job is None:
        return slot
    return {**slot, **{key: value for key, value in job.items() if key != "id"}, "task": job["id"]}


async def props(request: web.Request) -> web.Response:
    """What a client wants to know before it asks."""
    services = request.app[SERVICES]
    text = services.admission.text
    return web.json_response(
        {
            "default_generation_settings": {"n_ctx": services.admission.n_ctx, "params": _defaults(services)},
            "total_slots": int(services.supervisor.info.get("n_parallel") or services.dispatcher.snapshot()["slots"]),
            "model_alias": services.model.id,
            "chat_template": text.chat_template or "",
            "bos_token": text.name(text.vocab.bos_id),
            "eos_token": text.name(text.vocab.eos_id),
            "modalities": {"vision": False, "audio": False},
            "build_info": f"colibri {services.version}",
        }
    )


def _defaults(services: Services) -> dict[str, Any]:
    given = asdict(services.settings.sampling())
    return {name: given[name] for name in PARAMS if name in given}
