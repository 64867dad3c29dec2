"""Every route once: path, handler, who may call it, what its body is. Not here: the handlers, the middleware.

The router, the access check and /openapi.json are all made from this table, so none can know a route that another
does not.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from pydantic import BaseModel

from appliance.api import admin, completions, health, models, openapi, schema, text
from appliance.api.auth import Access

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """`path` is aiohttp's pattern; `body` None for routes without one; `streams` where `stream: true` is known."""

    method: str
    path: str
    handler: Handler
    access: Access
    summary: str
    body: type[BaseModel] | None = None
    streams: bool = False


async def _openapi(request: web.Request) -> web.Response:
    return web.json_response(openapi.document(ROUTES))


ROUTES: tuple[Route, ...] = (
    Route("GET", "/livez", health.livez, "probe", "Whether the process answers"),
    Route("GET", "/health", health.health, "probe", "Whether the model is loaded"),
    Route("GET", "/v1/health", health.health, "probe", "Whether the model is loaded"),
    Route("GET", "/readyz", health.readyz, "probe", "Whether a request would be taken now"),
    Route("GET", "/metrics", health.metrics, "user", "Prometheus metrics"),
    Route("GET", "/openapi.json", _openapi, "user", "This description"),
    Route("GET", "/v1/models", models.list_models, "user", "The models served"),
    Route("GET", "/v1/models/{id:.+}", models.get_model, "user", "One model"),
    Route("POST", "/v1/chat/completions", completions.chat, "user", "The next turn of a conversation",
          schema.ChatRequest, streams=True),
    Route("POST", "/v1/completions", completions.complete, "user", "Text after a prompt",
          schema.CompletionRequest, streams=True),
    Route("POST", "/tokenize", text.tokenize, "user", "Text to token ids", schema.TokenizeRequest),
    Route("POST", "/detokenize", text.detokenize, "user", "Token ids to text", schema.DetokenizeRequest),
    Route("POST", "/apply-template", text.apply_template, "user", "Messages to the prompt the model reads",
          schema.ApplyTemplateRequest),
    Route("GET", "/admin/state", admin.state, "admin", "Engine, queue, speeds, memory and counts"),
)  # fmt: skip
