"""Chooses the context and the load mode where the request leaves them open. Not here: what they cost, the verdict.

Without a number of the user's, less context is better than no start, or than weights that are read anew for each token.
"""

from typing import Generic, NamedTuple, TypeVar

from engine.cache.layout import PAGE, whole_pages
from engine.planner.needs import Needs

DEFAULT_CTX = 8192
# What a conversation needs: for that much context weights may leave the memory, for more they may not.
ENOUGH_CTX = 2048
LEAST_CTX = 512
# Of the budget, the part that a stream's cache may take: its every MiB is a MiB less pinned.
STREAM_KV_SHARE = 10

T = TypeVar("T", int, str)


class Choice(NamedTuple, Generic[T]):
    """A value, why, and whose it is: operator or policy."""

    value: T
    reason: str
    provenance: str = "policy"


class Choices:
    """For a request with `budget` bytes."""

    def __init__(self, needs: Needs, budget: int) -> None:
        self.needs, self.budget, self.asked = needs, budget, needs.request.load_mode

    def most_context(self, mode: str) -> int:
        """The largest context that fits, 0 for none."""
        return self.needs.most_context(mode, self.budget)

    def last_mode(self, n_ctx: int) -> str:
        """The load mode that is left when memory is short: what needs least, and of equals what is faster."""
        request = self.needs.request
        if self.asked == "stream" or (request.expert_cache and self.needs.facts.experts and self.asked == "auto"):
            return "stream"  # who asks for a cache of experts means a stream: what does not fit is refused, not mapped
        return min(("stream", "mmap"), key=lambda mode: self.needs.least(mode, n_ctx))

    def context(self) -> Choice[int]:
        asked, trained = self.needs.request.n_ctx, self.needs.shape.n_ctx_train
        if asked:
            n_ctx = whole_pages(asked)
            rounded = "" if n_ctx == asked else f", rounded up to whole pages of {PAGE}"
            return Choice(n_ctx, f"asked for {asked:,}{rounded}", "operator")
        wish, reason = min(trained, DEFAULT_CTX), f"the trained length is {trained:,}"
        if wish < trained:
            reason += f"; without ctx_size at most {DEFAULT_CTX:,} are taken"
        n_ctx = self._affordable(whole_pages(wish))
        if n_ctx < wish:
            reason += "; more would leave too little memory for the rest"
        return Choice(n_ctx, reason)

    def _affordable(self, most: int) -> int:
        """At best `most`: what leaves all weights in memory, or else lets most of them stay, or else starts at all;
        `most` again where nothing does, and the refusal names what would fit."""
        enough = min(ENOUGH_CTX, most)
        if self.asked == "auto" and (n_ctx := min(most, self.most_context("resident"))) >= enough:
            return n_ctx
        mode = self.last_mode(most) if self.asked == "auto" else self.asked
        if mode == "stream":
            share = self.budget // STREAM_KV_SHARE // max(1, self.needs.kv(PAGE)) * PAGE
            most = max(enough, min(most, share))
        n_ctx = min(most, self.most_context(mode))
        return n_ctx if n_ctx >= min(LEAST_CTX, most) else most

    def load_mode(self, n_ctx: int) -> Choice[str]:
        if self.asked != "auto":
            return Choice(self.asked, "asked for", "operator")
        if self.needs.least("resident", n_ctx) <= self.budget:
            return Choice("resident", "weights, KV cache and engine fit: the fastest layout")
        if self.needs.least("stream", n_ctx) <= self.budget:
            return Choice("stream", "not all weights fit: what does is kept, the rest is read in large blocks")
        return Choice(self.last_mode(n_ctx), "a copy of the weights would not fit, the file's own pages may go")
