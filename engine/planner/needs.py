"""Bytes that a request needs of a model, by load mode and context. Not here: what the machine has, any decision.

    resident, mlock   weights + KV cache + engine            the weights are memory of our own or pinned
    mmap                        KV cache + engine            the file's pages live in the page cache and may be dropped
    stream            vectors + KV cache + engine + ring     what of the weights is pinned comes out of what is left
"""

from bisect import bisect_right
from dataclasses import replace

from engine.cache.layout import PAGE, position_bytes
from engine.footprint import ModelFacts, buffers_bytes, cache_bytes, engine_bytes, private_bytes, stream_engine_bytes
from engine.planner.residency import Residency, residency
from engine.planner.values import MAX_CTX, PlanRequest


class Needs:
    """Of `request`, on `threads` threads."""

    def __init__(self, facts: ModelFacts, request: PlanRequest, threads: int) -> None:
        self.facts, self.shape, self.request, self.threads = facts, facts.shape, request, threads

    def but(self, **change: object) -> "Needs":
        """The same with another wish."""
        return Needs(self.facts, replace(self.request, **change), self.threads)  # type: ignore[arg-type]

    def kv(self, n_ctx: int) -> int:
        r = self.request
        return cache_bytes(self.shape, n_ctx, r.type_k, r.type_v, r.parallel, r.ubatch_size)

    @property
    def growing_layers(self) -> int:
        """Those that see all positions, or all layers where none does."""
        return self.shape.windows.count(0) or self.shape.n_layers

    def kv_per_token(self) -> int:
        """Of a position in the growing layers."""
        r, s = self.request, self.shape
        return self.growing_layers * s.n_kv_heads * position_bytes(s.head_dim, s.v_dim, r.type_k, r.type_v)

    def buffers(self, n_ctx: int) -> int:
        r = self.request
        return buffers_bytes(self.shape, n_ctx, r.ubatch_size, self.threads, r.parallel)

    def engine(self, mode: str, n_ctx: int) -> int:
        """Both processes, the buffers, and what the kernel wants left over."""
        buffers = self.buffers(n_ctx)
        if mode == "stream":
            return stream_engine_bytes(buffers, self.shape.n_vocab, self.request.is_served)
        return engine_bytes(buffers)

    def least(self, mode: str, n_ctx: int) -> int:
        """What must be there, else nothing starts."""
        fixed = self.kv(n_ctx) + self.engine(mode, n_ctx)
        if mode == "stream":
            nothing = residency(self.facts, 0, self.request.expert_cache)
            return fixed + self.facts.weights["norms"] + nothing.ring + nothing.expert_cache
        return fixed + (0 if mode == "mmap" else self.facts.weights_bytes)

    def total(self, mode: str, n_ctx: int) -> int:
        """With all weights in memory."""
        return self.facts.weights_bytes + self.kv(n_ctx) + self.engine(mode, n_ctx)

    def private(self, mode: str, n_ctx: int, where: Residency) -> int:
        """The worker's own and locked memory at its peak: all of the cache written, all buffers used."""
        weights = {
            "resident": self.facts.dense_bytes + self.facts.weights["experts"],
            "mlock": self.facts.file_bytes,
            "stream": where.pinned + where.ring + where.expert_cache,
        }.get(mode, 0)
        worker = private_bytes(self.shape.n_vocab, self.request.is_served) + self.request.beside_bytes
        return weights + self.kv(n_ctx) + self.buffers(n_ctx) + worker

    def most_context(self, mode: str, budget: int) -> int:
        """The largest whole number of pages that fits `budget`, 0 for none."""
        pages = range(1, MAX_CTX // PAGE + 1)
        return bisect_right(pages, budget, key=lambda n: self.least(mode, n * PAGE)) * PAGE

    def sum_of(self, mode: str) -> str:
        """What `least` counts, in words."""
        if mode == "mmap":
            return "KV cache and engine; the file's pages come on top"
        return "KV cache, engine and read buffers" if mode == "stream" else "weights, KV cache and engine"
