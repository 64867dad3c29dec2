"""What a plan comes to: a verdict, a word for where the weights will be, and a sentence. Not here: the numbers.

The fit rule. Dense: under a third of what a token multiplies with in memory is hopeless, up to all of it streams.
Experts: what one token needs decides, not the file, and a cache of less than one token's experts counts as none.
"""

from engine.budget import GIB, Verdict, in_words, mib, verdict_of
from engine.footprint import ModelFacts
from engine.planner.forecast import Forecast
from engine.planner.needs import Needs
from engine.planner.refusal import refusal
from engine.planner.residency import Residency
from engine.planner.values import Fit

LEAST_SHARE = 1 / 3


class Judged:
    """Of `needs` in load mode `mode` with `budget` bytes."""

    def __init__(self, needs: Needs, mode: str, n_ctx: int, budget: int, where: Residency) -> None:
        self.needs, self.mode, self.n_ctx, self.budget, self.where = needs, mode, n_ctx, budget, where
        self.least, self.total = needs.least(mode, n_ctx), needs.total(mode, n_ctx)

    @property
    def spare(self) -> int:
        return self.budget - self.total

    @property
    def verdict(self) -> Verdict:
        experts = self._facts.experts
        is_kept = self.where.stream_per_token == 0 and self.cached >= (experts.n_bytes if experts else 0)
        if self.mode == "stream" and is_kept and self.least <= self.budget < self.total:
            return "TIGHT"  # only rows of the embedding are read
        return verdict_of(self.total, self.least, self.budget, self.mode in ("resident", "mlock"))

    @property
    def share(self) -> float:
        """Of what one token needs, the part that stays in memory."""
        experts, dense = self._facts.experts, self._facts.dense_bytes
        cycle = experts.cycle_bytes if experts else 0
        if self.mode == "stream":
            held = self.where.pinned + (cycle if self.cached >= cycle else 0)
        else:
            held = max(0, self.budget - self.least) if self.mode == "mmap" else dense + cycle
        return min(1.0, held / max(1, dense + cycle))

    @property
    def fit(self) -> Fit:
        if self.verdict != "PAGES":
            return "no" if self.verdict == "NO" else "resident"
        return "hopeless" if self.share < LEAST_SHARE else "streams"

    def reason(self, speed: Forecast, is_measured: bool, last_mode: str) -> str:
        """The verdict in one sentence. `is_measured`: the disk's speed is; `last_mode`: the load mode that needs least
        memory."""
        if self.verdict == "NO":
            return refusal(self.needs, self.mode, self.n_ctx, self.budget, last_mode)
        if self.verdict == "PAGES":
            return self._from_disk(speed, is_measured)
        if self.spare < 0:
            return "all that a token multiplies with stays in memory; the embedding is read row by row"
        tight = ", under a tenth of the budget" if self.verdict == "TIGHT" else ""
        return f"all of it stays in memory, {in_words(self.spare)} of {in_words(self.budget)} are left{tight}"

    @property
    def cached(self) -> int:
        return self.where.expert_cache

    @property
    def _facts(self) -> ModelFacts:
        return self.needs.facts

    def _from_disk(self, speed: Forecast, is_measured: bool) -> str:
        guess = "" if is_measured else ", the disk's speed assumed"
        pace = f"{in_words(speed.disk_bytes)} are read from disk for each token, {per_token(speed.tok_s)}{guess}"
        if self.mode != "stream":
            room = mib(self.spare + self.needs.facts.weights_bytes)
            have = f"the weights of {mib(self._facts.weights_bytes)} do not fit the {room} left for their pages"
        else:
            beside = f" and {in_words(self.cached)} of experts" if self.cached else ""
            have = f"{in_words(self.where.pinned)} of the weights{beside} stay in memory"
        if self.fit == "streams":
            return f"{have}: {pace}"
        more = max(1, -(-self._missing() // GIB))
        return f"{have}, under a third of what a token needs: {pace}; a smaller file or {more} GiB more memory helps"

    def _missing(self) -> int:
        """Bytes until a token's needs are in memory by the third that the rule asks for."""
        experts = self._facts.experts
        need = self._facts.dense_bytes + (experts.cycle_bytes if experts else 0)
        return round(need * (LEAST_SHARE - self.share))


def per_token(tok_s: float) -> str:
    """A pace for people."""
    if tok_s >= 1:
        return f"about {tok_s:.1f} tok/s"
    seconds = 1 / tok_s if tok_s > 0 else float("inf")
    return f"about {tok_s:.2f} tok/s" if seconds < 10 else f"about {seconds:.0f} s each"
