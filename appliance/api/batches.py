"""/v1/batches in OpenAI's shape: ask for one, watch it, cancel it. Not here: the work (appliance/batches)."""

from typing import Any

from aiohttp import web

from appliance.api.batch_schema import BatchRequest
from appliance.api.body import read_object
from appliance.api.fields import parse
from appliance.api.files import NoSuchFile, listed, owner_of
from appliance.api.query import known_only, whole
from appliance.api.services import KEY_NAME, SERVICES
from appliance.batches.job import new_batch
from engine.errors import InvalidParameter, RequestError


class NoSuchBatch(RequestError):
    status, code = 404, "batch_not_found"


async def create(request: web.Request) -> web.Response:
    """A new batch; its file is looked at next, whole, before the first answer."""
    services = request.app[SERVICES]
    body, _ = await read_object(request, services.body_cap)
    ask = parse(BatchRequest, body)
    services.check_open()
    served = {route.resource.canonical for route in request.app.router.routes() if route.resource is not None}
    if ask.endpoint not in served:
        raise InvalidParameter(f"{ask.endpoint} is not served by this version", param="endpoint")
    library = services.batches.shelf
    file = await library.file(ask.input_file_id, owner_of(request))
    if file is None:
        raise NoSuchFile("there is no file of that id; POST /v1/files stores one", param="input_file_id")
    doc = new_batch(request[KEY_NAME], ask.endpoint, ask.input_file_id, ask.completion_window, ask.metadata)
    await library.add(doc)
    services.batches.wake()
    return web.json_response(services.batches.shown(doc))


async def many(request: web.Request) -> web.Response:
    """A page of the list, the newest first."""
    known_only(request, "after", "limit")
    services = request.app[SERVICES]
    limit = whole(request, "limit", 20, 1, 100) or 20
    docs = await services.batches.shelf.batches(owner_of(request), limit + 1, request.query.get("after"))
    return web.json_response(listed([services.batches.shown(doc) for doc in docs], limit))


async def one(request: web.Request) -> web.Response:
    return web.json_response(request.app[SERVICES].batches.shown(await _found(request)))


async def cancel(request: web.Request) -> web.Response:
    """Stop it, if it has not ended; the batch as it is now."""
    batches = request.app[SERVICES].batches
    return web.json_response(batches.shown(await batches.cancel(await _found(request))))


async def _found(request: web.Request) -> dict[str, Any]:
    doc = await request.app[SERVICES].batches.shelf.batch(request.match_info["id"], owner_of(request))
    if doc is None:
        raise NoSuchBatch("there is no batch of that id; GET /v1/batches lists them")
    return doc
