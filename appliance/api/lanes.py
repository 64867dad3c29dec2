"""How a request is to be queued, read from its headers and its key, and what its answer's headers say of its place.

`X-Colibri-Lane` names a lane, never a better one than the key's own; `X-Colibri-Deadline-Ms` is how long its client
will wait for the answer to begin. Not here: the queue (appliance/queue.py), what a place is called in a stream (sse).
"""

from aiohttp import web

from appliance.api.errors import UnsupportedParameter
from appliance.api.generation import Generation
from appliance.api.services import KEY
from appliance.lane import LANES, Lane
from appliance.request import Queued
from engine.errors import NotPermitted

LONGEST_MS = 7 * 24 * 3600 * 1000
GENERATION = web.RequestKey("generation", Generation)
"""The answer that a request is given, once it has one."""
HEADERS = ("X-Colibri-Lane", "X-Colibri-Deadline-Ms", "Idempotency-Key")
"""What a request for an answer may send."""


def lane_of(request: web.Request) -> Lane:
    """The lane to wait in: the header's, else the key's. Raises UnsupportedParameter for a lane that there is not,
    NotPermitted for one that is served before the key's."""
    own, given = request[KEY].lane, request.headers.get("X-Colibri-Lane")
    if given is None:
        return own
    lane = next((known for known in LANES if known == given.strip().lower()), None)
    if lane is None:
        text = f"X-Colibri-Lane is {given[:40]!r}; it takes {', '.join(LANES[:-1])} or {LANES[-1]}"
        raise UnsupportedParameter(text, param="X-Colibri-Lane")
    if LANES.index(lane) < LANES.index(own):
        raise NotPermitted(f"this key waits in the lane {own}; {lane} is served before it, so ask with another key")
    return lane


def deadline_of(request: web.Request) -> int | None:
    """Milliseconds in which the answer must begin, None without such a wish; raises UnsupportedParameter."""
    given = request.headers.get("X-Colibri-Deadline-Ms")
    if given is None:
        return None
    text = given.strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and 1 <= int(text) <= LONGEST_MS):
        words = f"X-Colibri-Deadline-Ms is {given[:40]!r}; it takes a whole number from 1 to {LONGEST_MS}"
        raise UnsupportedParameter(words, param="X-Colibri-Deadline-Ms")
    return int(text)


def place_headers(generation: Generation) -> dict[str, str]:
    """Where the answer stands, or where it stood when it was asked for: 0 is an answer that began at once. The ETA is
    left out while no speed has been measured."""
    first, last = (generation.events[i][1] if generation.events else None for i in (0, -1))
    place = last if isinstance(last, Queued) else first if isinstance(first, Queued) else Queued(0, 0)
    headers = {"X-Colibri-Queue-Position": str(place.position)}
    if place.eta_ms is not None:
        headers["X-Colibri-Queue-Eta-Ms"] = str(place.eta_ms)
    return headers
