"""The newest log lines of this process as plain values, for who reads them over HTTP. Not here: files, formats.

Everything said by a `colibri.*` logger at the level in force, with its source in one word. What may not be logged
(prompts, answers, keys) is kept out where lines are written: logs.py refuses such fields and blanks known secrets.
"""

import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from appliance.events import one_line
from appliance.logs import request_id

KEPT = 5000
LINE_CHARS = 2000
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
SOURCES = {
    "worker": "engine", "supervisor": "supervisor", "swap": "swap", "swapper": "swap", "trial": "swap",
    "journal": "swap", "api": "api", "access": "api",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """`id` counts from 1; `level` is a word of LEVELS; `source` is engine, supervisor, swap, api or server."""

    id: int
    time: float
    level: str
    source: str
    text: str


class LogLines(logging.Handler):
    """A ring of the newest KEPT lines; a handler's own lock makes it fit for threads."""

    def __init__(self, kept: int = KEPT) -> None:
        super().__init__()
        self.boot = uuid4().hex[:8]
        self._ring: deque[Line] = deque(maxlen=kept)
        self._count = 0
        self._lock = self.lock or contextlib.nullcontext()

    @contextlib.contextmanager
    def listening(self) -> Iterator["LogLines"]:
        """Keep what is logged inside."""
        top = logging.getLogger("colibri")
        top.addHandler(self)
        try:
            yield self
        finally:
            top.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        # Called with the lock held.
        self._count += 1
        self._ring.append(
            Line(self._count, round(record.created, 3), _level(record.levelno), _source(record.name), _text(record))
        )

    def read(self, after: int | None, limit: int, level: str = "debug") -> dict[str, Any]:
        """At most `limit` lines of at least `level` after the id `after`, as GET /admin/logs answers.

        Without `after` the newest ones, with it the next ones; `next` is what to ask for then, `dropped` counts lines
        that have left the ring unread. An `after` of an earlier start (`boot` differs) counts as 0.
        """
        with self._lock:
            lines, count = list(self._ring), self._count
        oldest = count - len(lines) + 1
        if after is None:
            start, dropped = 0, 0
        else:
            after = 0 if after > count else after
            start, dropped = max(0, after + 1 - oldest), max(0, oldest - after - 1)
        least = LEVELS[level]
        wanted = [line for line in lines[start:] if LEVELS[line.level] >= least]
        shown = wanted[-limit:] if after is None else wanted[:limit]
        is_all = after is None or len(wanted) <= limit
        upto = count if is_all else shown[-1].id
        return {"boot": self.boot, "lines": [asdict(line) for line in shown], "next": upto, "dropped": dropped}


def _level(number: int) -> str:
    return next((word for word in ("error", "warning", "info") if number >= LEVELS[word]), "debug")


def _source(logger: str) -> str:
    return SOURCES.get(f"{logger}.".split(".")[1], "server")


def _text(record: logging.LogRecord) -> str:
    """The message, its fields and its request; of an exception the class alone, since its words may be anybody's."""
    words = [record.getMessage().removeprefix("| ")]
    words += [f"{key}={value}" for key, value in getattr(record, "fields", {}).items()]
    if record.exc_info and record.exc_info[0] is not None:
        words.append(f"({record.exc_info[0].__name__}; the log file has its place)")
    name = getattr(record, "request_id", None) or request_id.get()
    if name:
        words.append(f"[{name}]")
    return one_line("  ".join(words), LINE_CHARS)
