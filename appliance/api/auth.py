"""Who may call which route: closed unless the route's row says otherwise. Not here: the keys, the table of routes."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from appliance.api.services import IS_ADMIN, KEY, KEY_NAME, RATE, SERVICES, Services
from appliance.key_lines import ANYONE, Access, Key
from engine.errors import Busy, NotAuthorised, NotPermitted

ACCESS: web.AppKey[dict[web.AbstractResource, Access]] = web.AppKey("access", dict)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
NOBODY = ANYONE.name
NEEDS = {"admin": "the admin key", "user": "a user's or the admin key", "watch": "a key"}


@web.middleware
async def auth(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let the request through or raise; a path that no row names needs a key before it is said to be missing.

    A POST to a user's route is work: it counts for the key's rate, and the key must be allowed what serves now.
    """
    services = request.app[SERVICES]
    resource = request.match_info.route.resource
    access: Access = "user" if resource is None else request.app[ACCESS].get(resource, "admin")
    request[KEY], request[KEY_NAME], request[IS_ADMIN] = ANYONE, NOBODY, False
    given = request.headers.get("Authorization") or f"Bearer {request.headers.get('X-Api-Key', '')}"
    scheme, _, secret = given.partition(" ")
    secret = secret.strip()
    if access == "probe":
        return await handler(request)
    if access in ("watch", "user") and services.settings.no_auth:
        # Whoever sends a key may have its lane; clients that must send something send anything.
        request[KEY] = (services.keys.find(secret) if secret else None) or ANYONE
        return await handler(request)
    if not secret:
        raise NotAuthorised("this route needs a key; send it as 'Authorization: Bearer KEY'")
    if scheme.lower() != "bearer":
        raise NotAuthorised("the Authorization header has another scheme; send 'Authorization: Bearer KEY'")
    key = services.keys.find(secret)
    if key is None:
        raise NotAuthorised("that key is not known here; the server's operator has the keys")
    if not key.may(access):
        raise NotPermitted(f"this route needs {NEEDS[access]}, a {key.role} key was sent")
    request[KEY], request[KEY_NAME], request[IS_ADMIN] = key, key.name, key.may("admin")
    if access == "user" and request.method == "POST":
        check_scope(services, key)
        _count(request, key)
    return await handler(request)


def check_scope(services: Services, key: Key) -> None:
    """Raise NotPermitted when the key may not be answered by what serves now; before that is known it may wait."""
    if services.is_undecided:
        return
    served = services.swapper.in_force
    if not key.may_use((services.model.id, *services.model.aliases), served.name):
        allowed = [f"the {what} {', '.join(names)}" for what, names in
                   (("models", key.models), ("profiles", key.profiles)) if names]  # fmt: skip
        text = f"this key is for {' and '.join(allowed)}, and '{services.model.id}' is served now"
        if served.name:
            text += f" by the profile '{served.name}'"
        raise NotPermitted(f"{text}; come back when that has changed, or ask the operator for another key")


def _count(request: web.Request, key: Key) -> None:
    allowance = request.app[SERVICES].keys.take(key)
    if allowance is None:
        return
    request[RATE] = allowance
    if allowance.retry_s > 0:
        text = f"this key may send {allowance.limit} requests a minute; send it again in {allowance.retry_s:.1f} s"
        raise Busy(text, retry_after_s=allowance.retry_s)
