"""GET /v1/models and /v1/models/{id}: what this server answers for. Not here: loading, profiles."""

from typing import Any

from aiohttp import web

from appliance.api.services import SERVICES, Services


def card(services: Services, name: str) -> dict[str, Any]:
    """OpenAI's four fields, ours under `meta`: `state` is the supervisor's."""
    model = services.model
    meta = {**model.meta, "state": services.supervisor.state}
    return {"id": name, "object": "model", "created": model.created, "owned_by": "colibri", "meta": meta}


async def list_models(request: web.Request) -> web.Response:
    services = request.app[SERVICES]
    names = (services.model.id, *services.model.aliases)
    return web.json_response({"object": "list", "data": [card(services, name) for name in names]})


async def get_model(request: web.Request) -> web.Response:
    services = request.app[SERVICES]
    return web.json_response(card(services, services.model.check(request.match_info["id"])))
