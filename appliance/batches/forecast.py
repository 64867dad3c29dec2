"""When a batch will be done, from what it has done so far. Not here: the hours it may work in (window.py).

Rows are unlike, and they come in order of length inside each bucket, so the count of rows alone would promise too much
at first. What is counted is work: the bytes of a row's own text plus a share per row, and the two speeds of it, of the
whole run and of the latest rows, give the middle and the width of what is said.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

from appliance.batches.window import Window

ROW_BYTES = 200.0
"""What a row costs beside its own text, in bytes of such text: its answer and its way through the queue."""
LATEST = 32
"""Rows whose speed counts as the present one."""


@dataclass(frozen=True, slots=True)
class Left:
    """Seconds of work left: the expected, and a range that holds it in most cases."""

    s: float
    low_s: float
    high_s: float


@dataclass(slots=True)
class Forecast:
    """`total` is the work of all groups, see `work`; `now_s` is any clock of working time that stands still while the
    batch does."""

    total: float
    done: float = 0.0
    _began: float | None = None
    _last: float = 0.0
    _latest: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=LATEST + 1))

    def begin(self, now_s: float) -> None:
        """Work begins, or goes on after a pause, which does not count: what was learned of the speed stays."""
        shift = 0.0 if self._began is None else now_s - self._last
        self._began = now_s if self._began is None else self._began + shift
        self._latest = deque(((at + shift, done) for at, done in self._latest), maxlen=LATEST + 1)
        if not self._latest:
            self._latest.append((now_s, self.done))
        self._last = now_s

    def skip(self, work: float) -> None:
        """So much is done already (by an earlier run, or as a copy) and says nothing about the speed."""
        self.total -= work

    def note(self, work: float, now_s: float) -> None:
        """A group is done."""
        if self._began is None:
            self.begin(now_s)
        self.done += work
        self._last = now_s
        self._latest.append((now_s, self.done))

    def left(self) -> Left | None:
        """None until something has been done."""
        if self._began is None or self.done <= 0 or self._last <= self._began:
            return None
        whole = (self._last - self._began) / self.done
        (at, done), n = self._latest[0], len(self._latest) - 1
        recent = (self._last - at) / (self.done - done) if self.done > done and n >= 4 else whole
        rest = max(0.0, self.total - self.done)
        middle = rest * (whole + recent) / 2
        spread = abs(whole - recent) / (whole + recent) + 1 / math.sqrt(1 + n)
        spread = min(0.9, spread * min(1.0, 0.3 + rest / self.total)) if self.total > 0 else 0.0
        return Left(middle, middle * (1 - spread), middle * (1 + spread))


def work(weight: int) -> float:
    """The work of a row with so many bytes of its own text."""
    return weight + ROW_BYTES


def words(left: Left | None, now: datetime, window: Window | None = None) -> str | None:
    """`done by 05:10 ± 20 min`; None where nothing is known. Another day is named."""
    if left is None:
        return None
    span = window or Window(0, 0)
    end, low, high = (span.finish(now, seconds) for seconds in (left.s, left.low_s, left.high_s))
    minutes = math.ceil((high - low).total_seconds() / 120)
    day = "" if end.date() == now.date() else f"{end:%a} "
    rounded = minutes if minutes < 10 else 5 * math.ceil(minutes / 5)
    return f"done by {day}{end:%H:%M} ± {rounded} min"
