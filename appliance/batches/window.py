"""The hours of the day in which a batch may work, as `22:00-06:00`. Not here: waiting for them.

Times are the machine's local ones, hours of the clock: in the nights when the clock is set, a window is an hour longer
or shorter. Its beginning belongs to it, its end does not; equal ends mean the whole day.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from engine.errors import InvalidParameter

FORM = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])\s*-\s*([01][0-9]|2[0-3]):([0-5][0-9])")
DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class Window:
    """Minutes after midnight; `end` before `begin` is on the next day."""

    begin: int
    end: int

    @classmethod
    def parse(cls, text: str) -> "Window":
        """From `HH:MM-HH:MM`; raises InvalidParameter."""
        match = FORM.fullmatch(text.strip())
        if match is None:
            shown = text[:40] if text.isascii() and text.isprintable() else "something else"
            raise InvalidParameter(
                f"a window is written as 22:00-06:00, hours from 00:00 to 23:59, and this is {shown!r}", param="window"
            )
        a, b, c, d = (int(part) for part in match.groups())
        return cls(60 * a + b, 60 * c + d)

    def __str__(self) -> str:
        return f"{self.begin // 60:02}:{self.begin % 60:02}-{self.end // 60:02}:{self.end % 60:02}"

    def is_open(self, now: datetime) -> bool:
        """Whether work may go on at this local time."""
        return self._after_begin(now) < self._length()

    def opens_in_s(self, now: datetime) -> float:
        """Seconds until it opens; 0 while it is open."""
        if self.is_open(now):
            return 0.0
        return (DAY - self._after_begin(now)) * 60.0

    def closes_in_s(self, now: datetime) -> float | None:
        """Seconds until it closes; None when it never does, 0 while it is closed."""
        if self._length() == DAY:
            return None
        return max(0.0, self._length() - self._after_begin(now)) * 60.0

    def finish(self, now: datetime, work_s: float) -> datetime:
        """When so many seconds of work are done if they are done in open hours alone."""
        if self._length() == DAY:
            return now + timedelta(seconds=work_s)
        now += timedelta(seconds=self.opens_in_s(now))
        left = self.closes_in_s(now) or 0.0
        if work_s <= left:
            return now + timedelta(seconds=work_s)
        nights, rest = divmod(work_s - left, self._length() * 60.0)
        closed_s = (DAY - self._length()) * 60.0
        return now + timedelta(seconds=left + nights * DAY * 60.0 + closed_s + rest)

    def _length(self) -> int:
        return (self.end - self.begin - 1) % DAY + 1

    def _after_begin(self, now: datetime) -> float:
        """Minutes since it opened last."""
        minute = now.hour * 60 + now.minute + (now.second + now.microsecond / 1e6) / 60
        return (minute - self.begin) % DAY
