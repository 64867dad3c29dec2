"""Plans and swaps: POST /admin/plan and /admin/swap, following and aborting one, and llama-swap's words for the same.

Not here: doing them (appliance/swaps/swapper.py).
"""

from typing import Any

from aiohttp import web

from appliance.api.body import read_object
from appliance.api.errors import TooLarge
from appliance.api.fields import parse_strictly
from appliance.api.preconditions import idempotency_key
from appliance.api.schema import ActiveProfileRequest, PlanRequest, SwapRequest
from appliance.api.services import KEY_NAME, SERVICES
from appliance.api.sse import dumps
from appliance.events import one_line
from appliance.profiles.strict import MOST_BYTES
from appliance.swaps.swap import Swap

BODY_CAP = 8 * MOST_BYTES
"""A text of MOST_BYTES as a JSON string, every character escaped, and the other fields."""
NAME_CHARS = 64
NOTE_CHARS = 200
SHOWN = 20
LONG = ("log", "engine_lines")


async def plan(request: web.Request) -> web.Response:
    """What a swap to the profile would do; a profile that cannot serve has a plan too, which says why."""
    body, _ = await read_object(request, BODY_CAP)
    ask = parse_strictly(PlanRequest, body)
    if ask.text is not None:
        check_size(ask.text)
    return answer(await request.app[SERVICES].swapper.plan(ask.name, ask.text))


async def swap(request: web.Request) -> web.Response:
    body, _ = await read_object(request, BODY_CAP)
    ask = parse_strictly(SwapRequest, body)
    return await _begin(request, ask.to, ask.rev, ask.note)


async def activate(request: web.Request) -> web.Response:
    """PUT /api/profiles/active."""
    body, _ = await read_object(request, BODY_CAP)
    ask = parse_strictly(ActiveProfileRequest, body)
    return await _begin(request, ask.name or ask.profile or "", ask.rev, ask.note)


async def _begin(request: web.Request, to: str, rev: int | None, note: str | None) -> web.Response:
    """202 for a swap that goes on, 200 for one that is done already (nothing to do, or nothing to stop)."""
    services = request.app[SERVICES]
    services.check_open()
    key = idempotency_key(request)
    begun = await services.swapper.begin(to, rev=rev, note=remark(note), by=user(request), idempotency_key=key)
    return _told(begun)


async def one(request: web.Request) -> web.Response:
    return answer(request.app[SERVICES].swapper.find(request.match_info["id"]))


async def many(request: web.Request) -> web.Response:
    """The newest first, without their logs."""
    swapper = request.app[SERVICES].swapper
    current = [swapper.current.json()] if swapper.current is not None else []
    documents = [*current, *reversed(swapper.past()[-SHOWN:])]
    return answer({"swaps": [short(document) for document in documents[:SHOWN]]})


async def abort(request: web.Request) -> web.Response:
    begun = await request.app[SERVICES].swapper.abort(request.match_info["id"], by=user(request))
    return _told(begun, status=202)


async def running(request: web.Request) -> web.Response:
    """llama-swap's GET /running: the models in memory, with its words for their states."""
    services = request.app[SERVICES]
    state = services.swapper.state()["state"]
    word = {"ready": "ready", "degraded": "ready", "loading": "starting", "swapping": "starting",
            "draining": "stopping"}.get(state)  # fmt: skip
    models = [{"model": services.model.id, "state": word}] if word is not None else []
    return answer({"running": models})


def user(request: web.Request) -> str:
    """Who did it, for the log: the name that the client gives, else that of its key."""
    return one_line(request.headers.get("X-Colibri-User", ""), NAME_CHARS).strip() or request[KEY_NAME]


def remark(note: str | None) -> str:
    """Why it was done, on one line."""
    return one_line(note or "", NOTE_CHARS)


def check_size(text: str) -> None:
    size = len(text.encode())
    if size > MOST_BYTES:
        raise TooLarge(f"the text has {size} bytes; a profile may have {MOST_BYTES}", param="text")


def short(document: dict[str, Any]) -> dict[str, Any]:
    """A swap's document without its long lists."""
    return {key: value for key, value in document.items() if key not in LONG}


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=dumps(value), status=status, content_type="application/json", headers=headers)


def _told(begun: Swap, status: int | None = None) -> web.Response:
    status = status or (202 if begun.ended is None else 200)
    return answer(begun.json(), status, {"Location": f"/admin/swap/{begun.id}"})
