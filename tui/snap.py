"""What the service said last, and how the link stands: read by path, never raising. Not here: how it is fetched.

The service may be of another version than this program: a key may be missing, of another type, or new. So nothing is
taken for granted; a value that is not what was asked for counts as absent.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tui.words import plain

API = 1  # the number of /admin/state's document that this program was written for
WORKING = {"loading", "draining", "swapping"}


class Facts:
    """A JSON object read by dotted path."""

    __slots__ = ("raw",)

    def __init__(self, raw: object = None) -> None:
        self.raw: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __iter__(self) -> Iterator[str]:
        return (key for key in self.raw if isinstance(key, str))

    def get(self, path: str) -> Any:
        """Whatever lies there, or None."""
        here: Any = self.raw
        for key in path.split("."):
            if not isinstance(here, Mapping):
                return None
            here = here.get(key)
        return here

    def has(self, path: str) -> bool:
        """Whether something other than null lies there."""
        return self.get(path) is not None

    def text(self, path: str, default: str = "") -> str:
        """A string without control characters; numbers are spelt."""
        value = self.get(path)
        if isinstance(value, str):
            return plain(value) or default
        if isinstance(value, bool) or value is None:
            return default
        number = _number(value)
        return default if number is None else f"{number:g}"

    def num(self, path: str) -> float | None:
        """A finite number, else None; true and false are no numbers."""
        return _number(self.get(path))

    def whole(self, path: str) -> int | None:
        """A number without its fraction."""
        number = _number(self.get(path))
        return None if number is None else int(number)

    def flag(self, path: str) -> bool | None:
        """True or false, else None."""
        value = self.get(path)
        return value if isinstance(value, bool) else None

    def at(self, path: str) -> "Facts":
        """The object that lies there; an empty one when there is none."""
        return Facts(self.get(path))

    def rows(self, path: str) -> list["Facts"]:
        """The objects of a list; what is no object is left out."""
        value = self.get(path)
        return [Facts(row) for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []

    def numbers(self, path: str) -> list[float]:
        """The finite numbers of a list."""
        value = self.get(path)
        return [n for n in map(_number, value) if n is not None] if isinstance(value, list) else []

    def texts(self, path: str) -> list[str]:
        """The strings of a list."""
        value = self.get(path)
        return [plain(item) for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


@dataclass(frozen=True)
class Link:
    """How the link to the service stands. Times are of the monotonic clock, None is never."""

    url: str = ""
    is_up: bool = False
    at: float | None = None  # the last good answer
    lost_at: float | None = None
    lost_epoch: float = 0.0
    error: str = ""
    attempt: int = 0
    retry_at: float | None = None
    back_at: float | None = None
    was_down_s: float = 0.0
    refused: str = ""  # the service is there and does not let us in: what to do about it
    period_s: float = 1.0


@dataclass(frozen=True)
class Snap:
    """One answer of GET /admin/state with the state of the link; screens are given the newest one."""

    facts: Facts = field(default_factory=Facts)
    link: Link = field(default_factory=Link)
    events: tuple[Facts, ...] = ()
    now: float = 0.0  # monotonic, when this was made

    # The reading methods again, so that a screen writes snap.num("speeds.predicted_per_second").
    def get(self, path: str) -> Any:
        return self.facts.get(path)

    def has(self, path: str) -> bool:
        return self.facts.has(path)

    def text(self, path: str, default: str = "") -> str:
        return self.facts.text(path, default)

    def num(self, path: str) -> float | None:
        return self.facts.num(path)

    def whole(self, path: str) -> int | None:
        return self.facts.whole(path)

    def flag(self, path: str) -> bool | None:
        return self.facts.flag(path)

    def at(self, path: str) -> Facts:
        return self.facts.at(path)

    def rows(self, path: str) -> list[Facts]:
        return self.facts.rows(path)

    def numbers(self, path: str) -> list[float]:
        return self.facts.numbers(path)

    def texts(self, path: str) -> list[str]:
        return self.facts.texts(path)

    @property
    def is_known(self) -> bool:
        """Whether the service has ever answered."""
        return self.link.at is not None

    @property
    def age_s(self) -> float:
        """Seconds since the last good answer."""
        return max(self.now - self.link.at, 0.0) if self.link.at is not None else 0.0

    @property
    def is_old(self) -> bool:
        """Whether the values are old: no answer for three periods, or no link at all."""
        return self.is_known and (not self.link.is_up or self.age_s > 3 * self.link.period_s + 1.0)

    @property
    def stale(self) -> str:
        """`STALE 12s` for a panel's title, else empty."""
        return f"STALE {self.age_s:.0f}s" if self.is_old else ""

    @property
    def state(self) -> str:
        """The service's own word, lower case, as last known."""
        return self.text("state").lower()

    @property
    def word(self) -> str:
        """The word in the status line: one of nine, with how far it is."""
        if not self.link.is_up:
            return "NO LINK"
        state = self.state or "unknown"
        if state == "loading":
            share = loading_share(self.facts)
            return f"LOADING {share:.0%}" if share is not None else "LOADING"
        if state == "swapping":
            n, of = self.whole("swap.n"), self.whole("swap.of")
            return f"SWAPPING {n}/{of}" if n is not None and of is not None else "SWAPPING"
        return state.upper()[:12]

    @property
    def meaning(self) -> str:
        """good, working, warning or bad: what the state's word means for a person."""
        if not self.link.is_up or self.state == "crashed":
            return "bad"
        if self.state in WORKING:
            return "working"
        return "good" if self.state == "ready" else "warning"

    @property
    def profile(self) -> str:
        """The name of the profile that serves, or last did."""
        return self.text("profile.name", "-")

    @property
    def api_fault(self) -> str:
        """Empty when the service speaks this program's version, else which of the two is older."""
        if not self.is_known:
            return ""
        api = self.whole("api")
        if api == API:
            return ""
        if api is None:
            return "it does not say which version of the admin API it speaks"
        older = "this program" if api > API else "the service"
        return f"it speaks version {api} of the admin API and this program version {API}: {older} is older"


def loading_share(facts: Facts) -> float | None:
    """How far a load is, from 0 to 1, or None."""
    done, total = facts.num("progress.done"), facts.num("progress.total")
    if done is None or not total or total < 0:
        return None
    return min(max(done / total, 0.0), 1.0)
