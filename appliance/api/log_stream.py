"""GET /logs/stream: log lines as plain text as they are written, in the shape of llama-swap. Not here: pages.

It begins with the newest lines (`?no-history` leaves them out) and ends with the server.
"""

import time
from typing import Any

from aiohttp import web

from appliance.api.query import known_only
from appliance.api.services import SERVICES
from appliance.api.sse import patience

FIRST = 100
"""Lines that a reader gets who has seen none."""
PAGE = 500
LOOK_S = 0.5
HEADERS = {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


async def stream(request: web.Request) -> web.StreamResponse:
    """Whole lines only; one says so when lines were lost because the reader was slow."""
    known_only(request, "no-history")
    services = request.app[SERVICES]
    response = web.StreamResponse(headers=HEADERS)
    if request.method == "HEAD":
        return web.Response(headers=HEADERS)
    page = services.loglines.read(None, FIRST)
    if "no-history" in request.query:
        page = {**page, "lines": []}
    async with patience(request):
        await response.prepare(request)
    while True:
        if text := _text(page):
            async with patience(request):
                await response.write(text.encode())
        full = len(page["lines"]) == PAGE
        if not full:
            # Events wake it early, which does no harm; the end of the server is what it must not miss.
            await services.events.wait(services.events.newest, LOOK_S)
            if services.events.is_closed:
                break
        page = services.loglines.read(page["next"], PAGE)
    async with patience(request):
        await response.write_eof()
    return response


def _text(page: dict[str, Any]) -> str:
    lost = [f"({page['dropped']} lines were lost here)\n"] if page["dropped"] else []
    return "".join([*lost, *map(_line, page["lines"])])


def _line(line: dict[str, Any]) -> str:
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(line["time"]))
    return f"{when} {line['level']} {line['source']} {line['text']}\n"
