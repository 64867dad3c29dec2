"""Headers that guard an order: nobody overwrites what they have not seen, asking twice does it once.

If-Match, If-None-Match, Idempotency-Key. Not here: the texts, what is kept under a key.
"""

import re

from aiohttp import web

from appliance.api.errors import PreconditionRequired, UnsupportedParameter
from appliance.profiles import Conflict
from engine.errors import InvalidParameter

TAG = re.compile(r'"([\x21\x23-\x7e]*)"|[\x21\x23-\x2b\x2d-\x7e]+')
"""One entity tag; without its quotes it is taken too, since people type it into curl."""

KEY_CHARS = 256


def idempotency_key(request: web.Request) -> str | None:
    """The Idempotency-Key, None without one; raises UnsupportedParameter for one that is empty or too long."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not 1 <= len(key) <= KEY_CHARS:
        text = f"the Idempotency-Key has more than {KEY_CHARS} characters or none"
        raise UnsupportedParameter(text, param="Idempotency-Key")
    return key


def quoted(etag: str) -> dict[str, str]:
    """The ETag header."""
    return {"ETag": f'"{etag}"'}


def check(request: web.Request, what: str, current: str | None) -> str | None:
    """The tag that the change may replace (`current`), or None for something new; raises what forbids the change.

    `what` names the thing in sentences; `current` is its tag, None when it does not exist.
    """
    wanted, unwanted = request.headers.get("If-Match"), request.headers.get("If-None-Match")
    if wanted is not None and unwanted is not None:
        raise InvalidParameter("send If-Match for a change or If-None-Match for something new, not both")
    if unwanted is not None:
        if unwanted.strip() != "*":
            raise InvalidParameter("If-None-Match: only * is understood here, for something new", param="If-None-Match")
        if current is not None:
            raise Conflict(f"{what} exists already; send If-Match with its ETag to change it", etag=current)
        return None
    if wanted is None:
        if current is not None:
            raise PreconditionRequired(f"{what} exists; send If-Match with the ETag that you have read", etag=current)
        return None
    if current is None:
        raise Conflict(f"{what} does not exist (any more), so it cannot be changed; send If-None-Match: * to make it")
    if wanted.strip() != "*" and current not in _tags(wanted):
        raise Conflict(f"{what} was changed by somebody else meanwhile; read it again, then decide", etag=current)
    return current


def _tags(header: str) -> set[str]:
    """The tags of a list; weak ones (W/"...") never match where bytes are replaced."""
    found = set()
    for part in header.split(","):
        match = TAG.fullmatch(part.strip())
        if match is not None:
            found.add(match[0].strip('"'))
    return found
