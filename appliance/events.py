"""What happened on this server lately, as numbered events that a reader can resume. Not here: HTTP, log lines.

An id is "BOOT-N": BOOT is drawn anew at each start of the process, N counts from 1. A reader who names the last id it
saw gets what came after; when some of that has left the ring, or the id is of an earlier start, it is told of the gap.
Events hold names, numbers and sentences; never a prompt, an answer or a key.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

from appliance.logs import blank

Kind = Literal["state", "swap", "profile", "worker", "request", "host"]
Level = Literal["info", "warning", "error"]
KEPT = 1000
TEXT_CHARS = 400
FACT_CHARS = 200
OWN = ("id", "time")


@dataclass(frozen=True, slots=True)
class Event:
    """`text` is one sentence for people, `facts` are plain values for programs."""

    id: str
    time: float
    kind: Kind
    level: Level
    text: str
    facts: dict[str, Any]

    def json(self) -> dict[str, Any]:
        own = {"id": self.id, "time": self.time, "kind": self.kind, "level": self.level, "text": self.text}
        return {**own, **self.facts}


class Events:
    """A ring of the newest KEPT events. `tell` may be called from any thread, `wait` belongs to an event loop."""

    def __init__(self, *, boot: str | None = None, clock: Callable[[], float] = time.time) -> None:
        self.boot = boot or uuid4().hex[:8]
        self.is_closed = False
        self._clock = clock
        self._ring: deque[Event] = deque(maxlen=KEPT)
        self._count = 0
        self._lock = threading.Lock()
        self._wakers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def tell(self, kind: Kind, text: str, level: Level = "info", **facts: Any) -> None:
        """Add an event and wake who waits for one."""
        wrong = set(OWN) & facts.keys()
        assert not wrong, f"{', '.join(sorted(wrong))} are the event's own fields"
        short = {name: value[:FACT_CHARS] if isinstance(value, str) else value for name, value in facts.items()}
        with self._lock:
            self._count += 1
            name = f"{self.boot}-{self._count}"
            self._ring.append(Event(name, round(self._clock(), 3), kind, level, one_line(text, TEXT_CHARS), short))
            self._wake()

    def since(self, last_id: str | None) -> tuple[list[Event], bool]:
        """Events after `last_id`, and whether some between were lost; None stands for the oldest that is kept."""
        with self._lock:
            if last_id is None:
                return list(self._ring), False
            number = self._number(last_id)
            if number is None:
                return list(self._ring), True
            oldest = self._count - len(self._ring) + 1
            return list(self._ring)[max(0, number + 1 - oldest) :], number + 1 < oldest

    def last(self, n: int) -> list[Event]:
        """The newest `n`, the oldest of them first."""
        with self._lock:
            return list(self._ring)[-n:] if n > 0 else []

    @property
    def newest(self) -> str:
        """The id that a reader of everything so far would hold; BOOT-0 before the first event."""
        return f"{self.boot}-{self._count}"

    async def wait(self, after_id: str, timeout_s: float) -> bool:
        """Whether there is an event after `after_id`, waiting for one at most so long; at once after `close`."""
        news = asyncio.Event()
        waker = (asyncio.get_running_loop(), news)
        with self._lock:
            if self.is_closed or self._number(after_id) != self._count:
                return not self.is_closed
            self._wakers.add(waker)
        try:
            async with asyncio.timeout(timeout_s):
                await news.wait()
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._wakers.discard(waker)
        return not self.is_closed

    def close(self) -> None:
        """The server ends: everybody who waits stops waiting."""
        with self._lock:
            self.is_closed = True
            self._wake()

    def _wake(self) -> None:
        for loop, news in self._wakers:
            loop.call_soon_threadsafe(news.set)

    def _number(self, event_id: str) -> int | None:
        """The N of an id of this start; None for any other text, also for a number nobody gave out yet."""
        boot, _, number = event_id.rpartition("-")
        if boot != self.boot or not (number.isascii() and number.isdigit() and len(number) <= 15):
            return None
        return int(number) if int(number) <= self._count else None


def one_line(text: str, most: int) -> str:
    """`text` without control characters and known secrets, cut to `most` characters with a sign that it was."""
    text = blank("".join(c if c.isprintable() else " " for c in text[: 4 * most]))
    return text if len(text) <= most else text[: most - 1] + "…"
