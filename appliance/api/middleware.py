"""Round every request: an id, an error in our shape whatever went wrong, one log line, a count. Not here: who may ask.

Log lines hold the route's pattern, never a client's path or body.
"""

import asyncio
import logging
import re
import time
import uuid

from aiohttp import web

from appliance.api import heap
from appliance.api.auth import NOBODY, Handler
from appliance.api.doors import cors
from appliance.api.errors import NoSuchRoute, TooLarge, WrongMethod, error_response, public
from appliance.api.lanes import GENERATION, place_headers
from appliance.api.messages_stream import failure_response, is_anthropic
from appliance.api.services import KEY_NAME, RATE, REQUEST_ID, SERVICES
from appliance.logs import about_request, fields
from appliance.names import hint
from engine.errors import ColibriError, RequestError

log = logging.getLogger("colibri.api")
ROUTINE = ("/health", "/v1/health", "/livez", "/readyz", "/metrics", "/admin/state", "/admin/logs", "/admin/events",
           "/admin/profiles", "/admin/swaps", "/admin/swap/{id}", "/running")  # fmt: skip
"""Asked every few seconds by machines and panels; logged only when it goes wrong."""
LARGE_BODY = 64 * 1024
CLIENT_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@web.middleware
async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost: everything below may raise what it likes."""
    given = request.headers.get("X-Request-Id", "")
    name = given if CLIENT_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"
    request[REQUEST_ID] = name
    began = time.monotonic()
    status = 499
    with about_request(name):
        try:
            response = await _guarded(request, handler, name)
            status = response.status
            return response
        finally:
            _note(request, status, time.monotonic() - began)
            if (request.content_length or 0) > LARGE_BODY:
                asyncio.get_running_loop().call_later(1.0, heap.trim)


async def on_prepare(request: web.Request, response: web.StreamResponse) -> None:
    """Headers that every answer has; a signal, since a stream's headers leave before its handler returns."""
    response.headers["Server"] = "colibri"
    response.headers["X-Content-Type-Options"] = "nosniff"
    if REQUEST_ID in request:
        response.headers["X-Request-Id"] = request[REQUEST_ID]
        if is_anthropic(request.path):
            response.headers["request-id"] = request[REQUEST_ID]
    if GENERATION in request:
        response.headers.update(place_headers(request[GENERATION]))
    if RATE in request:
        response.headers.update(request[RATE].headers())
    cors(request, response)


async def _guarded(request: web.Request, handler: Handler, name: str) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _of_aiohttp(request, error)
    except ConnectionError:
        raise  # the client is gone; there is nobody to answer
    except Exception as error:
        told = public(error, name)
        return failure_response(told, name) if is_anthropic(request.path) else error_response(told)


def _of_aiohttp(request: web.Request, error: web.HTTPException) -> web.Response:
    """aiohttp's own plain text refusals in our shape."""
    ours: ColibriError
    headers = {}
    if isinstance(error, web.HTTPNotFound):
        routes = sorted({r.canonical for r in request.app.router.resources()})
        near = hint(request.path[:100], routes) or "; GET /openapi.json lists all"
        ours = NoSuchRoute(f"there is no such route{near}")
    elif isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        ours = WrongMethod(f"this route does not take {error.method[:20]}; it takes {allowed}")
        headers["Allow"] = allowed
    elif isinstance(error, web.HTTPRequestEntityTooLarge):
        ours = TooLarge("the body is larger than this server takes")
    else:
        ours = RequestError(f"the request was refused with HTTP status {error.status}")
    response = failure_response(ours, request[REQUEST_ID]) if is_anthropic(request.path) else error_response(ours)
    response.headers.update(headers)
    if error.status >= 400 and type(ours) is RequestError:
        response.set_status(error.status)
    return response


def _note(request: web.Request, status: int, seconds: float) -> None:
    resource = request.match_info.route.resource
    route = resource.canonical if resource is not None else "(no route)"
    request.app[SERVICES].metrics.answered(route, status)
    is_routine = status in (200, 499, 503) and route in ROUTINE
    who = request.get(KEY_NAME, NOBODY)
    about = {"status": status, "ms": round(seconds * 1000), "client": request.remote, "who": who}
    log.log(logging.DEBUG if is_routine else logging.INFO, "%s %s", request.method, route, **fields(**about))
