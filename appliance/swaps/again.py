"""When to try once more after nobody could be started: a timer whose delay doubles. Not here: what is tried.

What was short may be there again: memory that another program gave back, a folder that was mounted, a model that was
copied. A box that was left alone must come back by itself.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Again:
    """`later` rings once, after `delay_s`; each ring doubles the next delay, `reset` makes it the first one again."""

    first_s: float = 5.0
    longest_s: float = 300.0
    _n: int = 0
    _timer: asyncio.TimerHandle | None = None

    @property
    def delay_s(self) -> float:
        return float(min(self.longest_s, self.first_s * 2**self._n))

    def later(self, work: Callable[[], None]) -> None:
        """Call `work()` after the delay, instead of what was to be called before."""
        self.cancel()
        self._timer = asyncio.get_running_loop().call_later(self.delay_s, self._ring, work)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reset(self) -> None:
        """Somebody serves: cancel, and begin with the first delay the next time."""
        self.cancel()
        self._n = 0

    def _ring(self, work: Callable[[], None]) -> None:
        self._timer = None
        self._n = min(self._n + 1, 30)
        work()
