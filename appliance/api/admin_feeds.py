"""GET /admin/events, a stream that can be resumed, and GET /admin/logs, page by page. Not here: what is in them.

A stream begins with what came after the id in Last-Event-ID (or `?last=`), without one with the newest few. The event
`gap` says that some were lost, by a restart or by sleeping too long: whoever follows then reads the state anew.
"""

import time
from typing import Any

from aiohttp import web

from appliance.api.admin_swaps import answer
from appliance.api.query import known_only, whole, word
from appliance.api.services import SERVICES
from appliance.api.sse import HEADERS, HEARTBEAT_S, EventStream
from appliance.events import Event
from appliance.loglines import KEPT, LEVELS

FIRST = 50
"""Events that a reader gets who has seen none."""
PAGE = 500


async def events(request: web.Request) -> web.StreamResponse:
    """Each event as `id`, `event` (its kind) and `data`; a comment when nothing happens; it ends with the server."""
    known_only(request, "last")
    if request.method == "HEAD":
        return web.Response(headers=HEADERS)
    ring = request.app[SERVICES].events
    last = request.headers.get("Last-Event-ID") or request.query.get("last")
    stream = EventStream(request)
    await stream.open()
    seen = ring.newest
    fresh, is_gap = (ring.last(FIRST), False) if last is None else ring.since(last)
    while True:
        seen = await _send(stream, fresh, is_gap, seen)
        if not await ring.wait(seen, HEARTBEAT_S):
            if ring.is_closed:
                return await stream.end()
            await stream.comment("nothing new")
        fresh, is_gap = ring.since(seen)


async def _send(stream: EventStream, fresh: list[Event], is_gap: bool, seen: str) -> str:
    """The id that the reader holds afterwards."""
    if is_gap:
        await stream.send(gap(), name="gap")
    for event in fresh:
        await stream.send(event.json(), name=event.kind, event_id=event.id)
    return fresh[-1].id if fresh else seen


def gap() -> dict[str, Any]:
    """It has no id of its own: a reader who leaves right after it is told again."""
    text = "some events were lost here; read /admin/state for what is true now"
    return {"id": None, "time": round(time.time(), 3), "kind": "gap", "level": "warning", "text": text}


async def logs(request: web.Request) -> web.Response:
    """The newest lines, or those after the id `after`."""
    known_only(request, "after", "limit", "level")
    after = whole(request, "after", None, 0, 10**15 - 1)
    limit = whole(request, "limit", PAGE, 1, KEPT)
    level = word(request, "level", "debug", tuple(LEVELS))
    return answer(request.app[SERVICES].loglines.read(after, limit or PAGE, level))
