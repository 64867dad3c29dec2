"""How often each key may ask: at most its rate in any minute. Not here: keys, HTTP, waiting for a turn (queue.py)."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left after a request: `retry_s` is 0 when it was taken, else when the next one will be."""

    limit: int
    left: int
    reset_s: float
    retry_s: float = 0.0

    def headers(self) -> dict[str, str]:
        """As OpenAI names them; `reset` is when nothing counts any more."""
        return {
            "x-ratelimit-limit-requests": str(self.limit),
            "x-ratelimit-remaining-requests": str(self.left),
            "x-ratelimit-reset-requests": f"{math.ceil(self.reset_s)}s",
        }


class Rates:
    """The times of the last minute's requests for each key that has a rate. A refused request does not count."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._taken: dict[bytes, deque[float]] = {}

    def take(self, key: bytes, limit: int) -> Allowance:
        """Count one request of the key unless `limit` were taken in the last minute."""
        now, taken = self._clock(), self._taken.setdefault(key, deque())
        while taken and taken[0] <= now - WINDOW_S:
            taken.popleft()
        if len(taken) >= limit:
            # A rate that was lowered while it ran has more than `limit` behind it.
            retry_s = taken[len(taken) - limit] + WINDOW_S - now
            return Allowance(limit, 0, taken[-1] + WINDOW_S - now, retry_s)
        taken.append(now)
        return Allowance(limit, limit - len(taken), WINDOW_S)

    def keep(self, keys: set[bytes]) -> None:
        """Forget all other keys."""
        self._taken = {key: taken for key, taken in self._taken.items() if key in keys}
