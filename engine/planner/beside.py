"""What a draft model takes beside the model that is planned. Not here: loading it (engine/load.py), guessing."""

from engine.cache.layout import whole_pages
from engine.footprint import ModelFacts, buffers_bytes, cache_bytes
from engine.planner.choice import DEFAULT_CTX
from engine.planner.values import PlanRequest


def draft_bytes(facts: ModelFacts, request: PlanRequest, threads: int) -> int:
    """Bytes of a draft model with weights of its own in memory, its cache (f16) and buffers, in the worker of the model
    that `request` asks for."""
    n_ctx, many = whole_pages(request.n_ctx or DEFAULT_CTX), request.parallel
    buffers = buffers_bytes(facts.shape, n_ctx, request.ubatch_size, threads, many)
    return facts.weights_bytes + cache_bytes(facts.shape, n_ctx, "f16", "f16", many, request.ubatch_size) + buffers
