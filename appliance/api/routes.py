"""Every route once: path, handler, who may call it, what its body is. Not here: the handlers, the middleware.

The router, the access check and /openapi.json are all made from this table, so none can know a route that another
does not.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from pydantic import BaseModel

from appliance.api import (
    admin,
    admin_feeds,
    admin_handoffs,
    admin_memory,
    admin_profiles,
    admin_swaps,
    batches,
    completions,
    embeddings,
    files,
    health,
    lanes,
    log_stream,
    messages,
    models,
    openapi,
    rerank,
    schema,
    score,
    slots,
    text,
)
from appliance.api.batch_schema import BatchRequest
from appliance.api.messages_schema import CountTokensRequest, MessagesRequest
from appliance.api.rerank_schema import RerankRequest
from appliance.key_lines import Access

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """`path` is aiohttp's pattern; `body` None for routes without one; `streams` where events may be the answer;
    `query` and `headers` are what else it reads; `form` the text fields of a multipart body beside its `file`;
    `answers` what kind of body comes back."""

    method: str
    path: str
    handler: Handler
    access: Access
    summary: str
    body: type[BaseModel] | None = None
    streams: bool = False
    query: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    form: tuple[str, ...] = ()
    answers: str = "application/json"


CHANGE = ("If-Match", "If-None-Match", "X-Colibri-User")
ORDER = ("Idempotency-Key", "X-Colibri-User")
LANE = lanes.HEADERS


async def _openapi(request: web.Request) -> web.Response:
    return web.json_response(openapi.document(ROUTES))


ROUTES: tuple[Route, ...] = (
    Route("GET", "/livez", health.livez, "probe", "Whether the process answers"),
    Route("GET", "/health", health.health, "probe", "Whether the model is loaded"),
    Route("GET", "/v1/health", health.health, "probe", "Whether the model is loaded"),
    Route("GET", "/readyz", health.readyz, "probe", "Whether a request would be taken now"),
    Route("GET", "/metrics", health.metrics, "watch", "Prometheus metrics"),
    Route("GET", "/openapi.json", _openapi, "user", "This description"),
    Route("GET", "/v1/models", models.list_models, "user", "The models served"),
    Route("GET", "/v1/models/{id:.+}", models.get_model, "user", "One model"),
    Route("POST", "/v1/chat/completions", completions.chat, "user", "The next turn of a conversation",
          schema.ChatRequest, streams=True, headers=LANE),
    Route("POST", "/v1/completions", completions.complete, "user", "Text after a prompt",
          schema.CompletionRequest, streams=True, headers=LANE),
    Route("POST", "/v1/messages", messages.create, "user", "The next turn, in Anthropic's shape", MessagesRequest,
          streams=True, headers=LANE),
    Route("POST", "/v1/messages/count_tokens", messages.count_tokens, "user", "How many tokens messages are",
          CountTokensRequest),
    Route("POST", "/v1/embeddings", embeddings.embed, "user", "Texts to vectors", schema.EmbeddingsRequest,
          headers=LANE),
    Route("POST", "/v1/rerank", rerank.rerank, "user", "Documents in the order of a query", RerankRequest,
          headers=LANE),
    Route("POST", "/v1/score", score.score, "user", "How likely each of a few answers is", score.ScoreRequest,
          headers=LANE),
    Route("POST", "/v1/files", files.upload, "user", "Store a file for a batch", form=("purpose",)),
    Route("GET", "/v1/files", files.many, "user", "The files", query=("purpose", "limit", "after", "order")),
    Route("GET", "/v1/files/{id}", files.one, "user", "One file"),
    Route("GET", "/v1/files/{id}/content", files.content, "user", "A file's bytes", answers="application/jsonl"),
    Route("DELETE", "/v1/files/{id}", files.delete, "user", "Delete a file"),
    Route("POST", "/v1/batches", batches.create, "user", "Answer a file of requests", BatchRequest),
    Route("GET", "/v1/batches", batches.many, "user", "The batches, the newest first", query=("after", "limit")),
    Route("GET", "/v1/batches/{id}", batches.one, "user", "One batch: state, counts, forecast"),
    Route("POST", "/v1/batches/{id}/cancel", batches.cancel, "user", "Stop a batch; what is answered stays"),
    Route("POST", "/tokenize", text.tokenize, "user", "Text to token ids", schema.TokenizeRequest),
    Route("POST", "/detokenize", text.detokenize, "user", "Token ids to text", schema.DetokenizeRequest),
    Route("POST", "/apply-template", text.apply_template, "user", "Messages to the prompt the model reads",
          schema.ApplyTemplateRequest),
    Route("GET", "/slots", slots.slots, "user", "What each slot computes, in llama-server's shape"),
    Route("GET", "/props", slots.props, "user", "What is served, in llama-server's shape"),
    Route("GET", "/running", admin_swaps.running, "user", "The models in memory, in llama-swap's shape"),
    Route("GET", "/api/profiles", admin_profiles.public, "user", "The profiles and which one serves"),
    Route("PUT", "/api/profiles/active", admin_swaps.activate, "admin", "Swap to a profile",
          schema.ActiveProfileRequest, headers=ORDER),
    Route("GET", "/admin/state", admin.state, "admin", "Engine, profile, queue, speeds, machine and counts"),
    Route("GET", "/admin/memory", admin_memory.memory, "admin", "What takes the memory, what is read from disk"),
    Route("GET", "/admin/residency", admin_memory.residency, "admin", "Where each layer's weights are, as a map",
          query=("rows", "cols", "by")),
    Route("GET", "/admin/events", admin_feeds.events, "admin", "What happens, as a stream that can be resumed",
          streams=True, query=("last",), headers=("Last-Event-ID",)),
    Route("GET", "/admin/logs", admin_feeds.logs, "admin", "The newest log lines", query=("after", "limit", "level")),
    Route("GET", "/logs/stream", log_stream.stream, "admin", "Log lines as they are written",
          query=("no-history",), answers="text/plain"),
    Route("GET", "/admin/profiles", admin_profiles.many, "admin", "The profiles, whether they fit, when they served"),
    Route("POST", "/admin/profiles/validate", admin_profiles.validate, "admin", "Every problem of a profile's text",
          schema.ValidateProfileRequest),
    Route("GET", "/admin/profiles/{name}", admin_profiles.one, "admin", "A profile's text, draft and history",
          query=("rev",)),
    Route("PUT", "/admin/profiles/{name}", admin_profiles.save, "admin", "Save a profile or a draft of it",
          schema.SaveProfileRequest, headers=CHANGE),
    Route("DELETE", "/admin/profiles/{name}", admin_profiles.delete, "admin", "Take a profile's edit or draft away",
          query=("draft",), headers=CHANGE),
    Route("POST", "/admin/plan", admin_swaps.plan, "admin", "What a swap to a profile would do", schema.PlanRequest),
    Route("POST", "/admin/swap", admin_swaps.swap, "admin", "Swap to a profile", schema.SwapRequest, headers=ORDER),
    Route("GET", "/admin/handoffs", admin_handoffs.many, "admin", "Answers handed over to a person, the newest first",
          query=("limit",)),
    Route("GET", "/admin/swaps", admin_swaps.many, "admin", "The latest swaps"),
    Route("GET", "/admin/swap/{id}", admin_swaps.one, "admin", "One swap: stages, times, reason, log"),
    Route("POST", "/admin/swap/{id}/abort", admin_swaps.abort, "admin", "Go back to the profile before",
          headers=("X-Colibri-User",)),
)  # fmt: skip
