"""Numbers, sizes and times as a person reads them. Not here: foreign text and its width (words.py), bars (looks.py).

What is not known is `-`; no function raises for a number that is odd.
"""

import math
import time
from dataclasses import dataclass
from typing import TypeGuard

UNKNOWN = "-"
NAMES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def _is_known(n: float | None) -> TypeGuard[float]:
    return n is not None and math.isfinite(n)


@dataclass(frozen=True)
class Scale:
    """One unit for a row of sizes, so that they can be compared by eye: `17.28`, `1.59`, `19.89` and then `GiB`."""

    unit: str

    def of(self, n: float | None) -> str:
        index = NAMES.index(self.unit)
        if not _is_known(n):
            return UNKNOWN
        return f"{n / 1024**index:,.{(0, 1, 1)[index] if index < 3 else 2}f}"


def scale(*sizes: float | None) -> Scale:
    """The unit that suits the largest of these."""
    most = max((abs(n) for n in sizes if _is_known(n)), default=0.0)
    return Scale(NAMES[min(int(math.log(max(most, 1), 1024)), len(NAMES) - 1)])


def size(n: float | None, unit: str = "") -> str:
    """Bytes with a spelt unit, `2.33 GiB`, `93.5 MiB`; `unit` fixes it for a column."""
    of = Scale(unit) if unit else scale(n)
    return f"{of.of(n)} {of.unit}" if _is_known(n) else UNKNOWN


def count(n: float | None) -> str:
    """A whole number with separators, `1,284`."""
    return f"{n:,.0f}" if _is_known(n) else UNKNOWN


def speed(n: float | None, unit: str = " tok/s") -> str:
    """Tokens a second, one digit after the point below 100."""
    if not _is_known(n):
        return f"{UNKNOWN}{unit}"
    return f"{n:.1f}{unit}" if n < 100 else f"{n:.0f}{unit}"


def rate(n: float | None, unit: str) -> str:
    """Progress a second in the unit of the progress: bytes as MB/s, all else with one digit; empty when unknown."""
    if not _is_known(n):
        return ""
    return f"{n / 1e6:,.0f} MB/s" if unit == "bytes" else f"{n:,.1f} {unit}/s"


def percent(part: float | None, whole: float | None = 1.0) -> str:
    """A share of something, `52%`."""
    return f"{100 * part / whole:.0f}%" if _is_known(part) and whole else UNKNOWN


def seconds(n: float | None) -> str:
    """A length of time that a person weighs: `0.6 s`, `18 s`, `3 min 07 s`, `2 h 05 min`."""
    if not _is_known(n):
        return UNKNOWN
    if abs(n) < 9.95:
        return f"{n:.1f} s"
    whole = round(n)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def millis(n: float | None) -> str:
    """Milliseconds, and seconds from one on: `340 ms`, `1.21 s`."""
    if not _is_known(n):
        return UNKNOWN
    return f"{n:.0f} ms" if n < 1000 else f"{n / 1000:.2f} s"


def age(n: float | None) -> str:
    """How long ago, short, in two parts at most: `0.4s`, `14s`, `3m04s`, `1h12m`, `3d04h`."""
    if not _is_known(n):
        return UNKNOWN
    s = max(n, 0.0)
    if s < 10:
        return f"{s:.1f}s"
    whole = int(s)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def elapsed(n: float | None) -> str:
    """A running count, `00:35` or `1:02:03`."""
    if not _is_known(n):
        return UNKNOWN
    hours, rest = divmod(int(max(n, 0.0)), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60:02}:{rest % 60:02}"


def clock(epoch: float | None, form: str = "%H:%M:%S") -> str:
    """A moment on this terminal's clock; what no clock shows is unknown."""
    try:
        return time.strftime(form, time.localtime(epoch)) if epoch is not None else UNKNOWN
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def day(epoch: float | None, now: float | None = None) -> str:
    """The time of day when it was today by `now`, else the date."""
    today = clock(time.time() if now is None else now, "%Y-%m-%d")
    date = clock(epoch, "%Y-%m-%d")
    return clock(epoch, "%H:%M") if date == today else date
