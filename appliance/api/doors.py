"""What browsers may do here: the Host check against DNS rebinding, CORS, cross-site forms. Not here: keys.

A page of another site can make a browser send requests to this machine. Under its own name for our address (rebinding)
it could read the answers too, so a Host that is a foreign domain name is refused. Addresses, names without a dot
(compose services) and localhost cannot be rebound by a stranger and pass.
"""

import ipaddress
import re
import socket

from aiohttp import web

from appliance.api.auth import ACCESS, Handler
from appliance.api.errors import HostNotAllowed, OriginNotAllowed
from appliance.api.services import SERVICES
from appliance.settings import Settings

ALLOW_HEADERS = (
    "Authorization, Content-Type, Idempotency-Key, X-Request-Id, If-Match, If-None-Match, Last-Event-ID, X-Colibri-User"
)
METHODS = "GET, POST, PUT, DELETE, OPTIONS"
HOST = re.compile(r"(\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[^\[\]:]+))(:[0-9]{0,5})?")
EXPOSE_HEADERS = (
    "X-Request-Id, Retry-After, Retry-After-Ms, ETag, Location, X-RateLimit-Limit-Requests, "
    "X-RateLimit-Remaining-Requests, X-RateLimit-Reset-Requests"
)


@web.middleware
async def doors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse foreign hosts and cross-site forms, answer preflights; the CORS header itself is put on by `cors`."""
    settings = request.app[SERVICES].settings
    resource = request.match_info.route.resource
    is_probe = resource is not None and request.app[ACCESS].get(resource) == "probe"
    host = request.headers.get("Host")
    # Every browser names a host; HTTP/1.0 without one comes from no page.
    if not is_probe and host is not None and not host_is_known(host, settings):
        raise HostNotAllowed("the Host header names a foreign site; start the server with --allowed-host NAME")
    origin = request.headers.get("Origin")
    if request.method == "OPTIONS":
        return web.Response(status=204, headers={"Allow": METHODS})
    # A form or a fetch without preflight is all a page of a foreign site can send; it cannot be JSON.
    if origin is not None and request.method != "GET" and request.content_type != "application/json":
        raise OriginNotAllowed("a web page may send JSON only; set Content-Type: application/json")
    return await handler(request)


def cors(request: web.Request, response: web.StreamResponse) -> None:
    """Name the origin on every answer, streams and errors included, when the operator has allowed it."""
    allowed = request.app[SERVICES].settings.cors_origin
    if not allowed:
        return
    response.headers["Vary"] = "Origin"
    origin = request.headers.get("Origin")
    if origin is None or not (origin in allowed or "*" in allowed):
        return
    response.headers["Access-Control-Allow-Origin"] = origin if origin in allowed else "*"
    response.headers["Access-Control-Expose-Headers"] = EXPOSE_HEADERS
    if request.method == "OPTIONS":
        response.headers["Access-Control-Allow-Methods"] = METHODS
        response.headers["Access-Control-Allow-Headers"] = ALLOW_HEADERS
        response.headers["Access-Control-Max-Age"] = "600"


def host_is_known(header: str, settings: Settings) -> bool:
    """Whether a Host header may be answered."""
    match = HOST.fullmatch(header.strip().lower())
    if match is None:
        return False
    name = (match["six"] or match["name"]).rstrip(".")
    allowed = {entry.lower().rstrip(".") for entry in settings.allowed_host}
    if "*" in allowed or name in allowed or name in (settings.host.lower(), socket.gethostname().lower()):
        return True
    if name and not match["six"] and ("." not in name or name.endswith(".localhost")):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
