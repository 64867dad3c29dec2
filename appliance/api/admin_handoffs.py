"""GET /admin/handoffs: the answers that were handed over to a person, the newest first. Not here: keeping them."""

from aiohttp import web

from appliance.api.admin_swaps import answer
from appliance.api.query import known_only, whole
from appliance.api.services import SERVICES
from appliance.handoffs import KEPT

PAGE = 100


async def many(request: web.Request) -> web.Response:
    """The newest `?limit=`; `id` is what the client got in `colibri.handoff`."""
    known_only(request, "limit")
    limit = whole(request, "limit", PAGE, 1, KEPT)
    return answer(request.app[SERVICES].handoffs.page(limit or PAGE))
