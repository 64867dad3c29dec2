"""Anthropic's envelope: named events, errors, the header of the request's id. Not here: what the events hold."""

import json
from typing import Any

from aiohttp import web

from appliance.api.errors import error_headers, error_object
from appliance.api.sse import EventStream
from engine.errors import ColibriError

ROUTES = "/v1/messages"
KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip


def is_anthropic(path: str) -> bool:
    """Whether a path's answers have this shape."""
    return path == ROUTES or path.startswith(f"{ROUTES}/")


def failure(error: ColibriError, request_id: str) -> dict[str, Any]:
    """`{"type": "error", "error": {"type", "message"}, "request_id"}`, with our param, code and facts beside them."""
    other = "api_error" if error.status >= 500 else "invalid_request_error"
    told = {**error_object(error), "type": KINDS.get(error.status, other)}
    return {"type": "error", "error": told, "request_id": request_id}


def failure_response(error: ColibriError, request_id: str) -> web.Response:
    """The whole answer."""
    body = json.dumps(failure(error, request_id), ensure_ascii=False).encode("utf-8", "replace")
    headers = error_headers(error)
    return web.Response(body=body, status=error.status, content_type="application/json", headers=headers)


class MessageStream(EventStream):
    """Events are named by their type, and message_stop is the last one of a whole answer."""

    def __init__(self, request: web.Request, request_id: str = "") -> None:
        super().__init__(request)
        self._request_id = request_id

    async def send(self, event: dict[str, Any], *, name: str = "", event_id: str = "") -> None:
        await super().send(event, name=name or str(event["type"]), event_id=event_id)

    async def done(self) -> web.StreamResponse:
        return await self.end()

    async def fail(self, error: ColibriError) -> web.StreamResponse:
        await self.send(failure(error, self._request_id))
        return await self.end()
