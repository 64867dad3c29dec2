"""Who may call which route: closed unless the route's row says otherwise. Not here: the keys, the table of routes."""

from collections.abc import Awaitable, Callable
from typing import Literal

from aiohttp import web

from appliance.api.services import IS_ADMIN, KEY_NAME, SERVICES
from engine.errors import NotAuthorised, NotPermitted

Access = Literal["probe", "user", "admin"]
"""probe: anyone. user: a key, or anyone under --no-auth. admin: the admin key, always."""
ACCESS: web.AppKey[dict[web.AbstractResource, Access]] = web.AppKey("access", dict)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
NOBODY = "nobody"


@web.middleware
async def auth(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let the request through or raise; a path that no row names needs a key before it is said to be missing."""
    services = request.app[SERVICES]
    resource = request.match_info.route.resource
    access: Access = "user" if resource is None else request.app[ACCESS].get(resource, "admin")
    request[KEY_NAME], request[IS_ADMIN] = NOBODY, False
    if access == "probe" or (access == "user" and services.settings.no_auth):
        return await handler(request)
    given = request.headers.get("Authorization") or f"Bearer {request.headers.get('X-Api-Key', '')}"
    scheme, _, secret = given.partition(" ")
    if not secret.strip():
        raise NotAuthorised("this route needs a key; send it as 'Authorization: Bearer KEY'")
    if scheme.lower() != "bearer":
        raise NotAuthorised("the Authorization header has another scheme; send 'Authorization: Bearer KEY'")
    key = services.keys.find(secret.strip())
    if key is None:
        raise NotAuthorised("that key is not known here; the server's operator has the keys")
    if not key.may("admin" if access == "admin" else "user"):
        raise NotPermitted("this route needs the admin key, a user key was sent")
    request[KEY_NAME] = key.name
    request[IS_ADMIN] = key.may("admin")
    return await handler(request)
