"""How fast this box answers, learned from finished requests. Not here: what the queue makes of it (queue.py)."""

from dataclasses import dataclass

from appliance.queue import TYPICAL_N, Rates
from appliance.request import Done

WEIGHT = 0.2
"""Of the newest measurement in a running mean."""
FEW_TOKENS = 16
"""A shorter prompt's rate is mostly overhead; it serves only until a longer one comes."""


@dataclass(slots=True)
class Speeds:
    """Running means; None until something was measured."""

    prompt_per_second: float | None = None
    predicted_per_second: float | None = None
    typical_n: float = TYPICAL_N

    def learn(self, done: Done) -> None:
        timings = done.timings
        if timings["prompt_n"] >= FEW_TOKENS or self.prompt_per_second is None:
            self.prompt_per_second = _mean(self.prompt_per_second, timings["prompt_per_second"])
        if timings["predicted_n"] >= 2:
            self.predicted_per_second = _mean(self.predicted_per_second, timings["predicted_per_second"])
        if done.finish_reason == "stop":  # a cut answer says how long it was allowed to be, not how long answers are
            self.typical_n = _mean(self.typical_n, float(done.n_generated)) or TYPICAL_N

    def rates(self) -> Rates:
        """The same as seconds per token, for ETAs."""
        return Rates(_inverse(self.prompt_per_second), _inverse(self.predicted_per_second), self.typical_n)


def _mean(old: float | None, new: float) -> float | None:
    if new <= 0:
        return old
    return new if old is None else (1 - WEIGHT) * old + WEIGHT * new


def _inverse(value: float | None) -> float | None:
    return 1 / value if value else None
