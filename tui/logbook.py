"""Lines of several sources in the order of their time, and a few of them at once. Not here: fetching, drawing.

At most KEPT lines stay, each cut at LINE_CHARS. When more than RATE lines a second arrive, the newest are taken and a
line says how many were held back: a flood must not cost more than it can show.
"""

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tui.units import count
from tui.words import plain

KEPT = 5000
LINE_CHARS = 2000
RATE = 200
LEVELS = ("debug", "info", "warning", "error")
SOURCES = ("engine", "supervisor", "swap", "api", "server", "event", "docker", "kernel")
Kind = Literal["line", "copy", "gap", "mark"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. `gap` says that lines are missing here, `mark` was put there by a person; a `copy` was read elsewhere
    and the service tells it again as soon as it can."""

    time: float
    level: str
    source: str
    text: str
    kind: Kind = "line"
    number: int = 0  # in the order of coming, given by the book

    @property
    def rank(self) -> int:
        """The place of its level; an unknown level counts as info."""
        return LEVELS.index(self.level) if self.level in LEVELS else 1


@dataclass
class Logbook:
    """`add` lines, `seen` gives those of a level and of some sources."""

    entries: list[Entry] = field(default_factory=list)
    version: int = 0
    _count: int = 0
    _credit: float = float(RATE)
    _at: float | None = None

    def add(self, lines: Iterable[Entry], now: float, is_backlog: bool = False) -> int:
        """Take lines at the moment `now` (any clock that only grows); gives how many were held back.

        What was written before anybody looked is no flood, so a backlog is taken whole.
        """
        found = list(lines)
        if self._at is not None:
            self._credit = min(self._credit + (now - self._at) * RATE, 2.0 * RATE)
        self._at = now
        held = 0
        if not is_backlog:
            room = int(self._credit)
            held = max(len(found) - room, 0)
            self._credit -= min(len(found), room)
        if held:
            found = sorted(found, key=lambda entry: entry.time)[held:]
            self.gap(f"{count(held)} lines held back ({RATE} lines/s are shown)", found[0].time if found else None)
        for entry in found:
            self._put(entry)
        self._shorten()
        return held

    def gap(self, text: str, time: float | None = None) -> None:
        """Say that something is missing before the line of that time; without one at the end."""
        at = time if time is not None else self.entries[-1].time if self.entries else 0.0
        self._put(Entry(at, "warning", "", f"... {text}", "gap"), is_before=time is not None)

    def mark(self, time: float, words: str) -> None:
        """A line of a person's own, now."""
        self._put(Entry(time, "error", "", f"-- mark {words} ", "mark"))
        self._shorten()

    def seen(self, level: str, sources: Sequence[str]) -> list[Entry]:
        """The lines of at least this level and of these sources (none named: all); gaps and marks always."""
        least, wanted = LEVELS.index(level), set(sources)
        always = ("gap", "mark")
        return [e for e in self.entries if e.kind in always or (e.rank >= least and (not wanted or e.source in wanted))]

    def forget_copies(self, source: str, since: float = 0.0) -> None:
        """The service tells its own lines of this time and later: what another source had of them goes."""
        kept = [e for e in self.entries if e.kind != "copy" or e.source != source or e.time < since]
        if len(kept) < len(self.entries):
            self.entries[:] = kept
            self.version += 1

    def sources(self) -> list[str]:
        """The sources that have lines: those we know in the order of SOURCES, then those of another version."""
        found = {entry.source for entry in self.entries if entry.source}
        return [source for source in SOURCES if source in found] + sorted(found - set(SOURCES))

    def _put(self, entry: Entry, is_before: bool = False) -> None:
        self._count += 1
        text = plain(entry.text, LINE_CHARS)
        if len(entry.text) > LINE_CHARS:
            text = f"{text[: LINE_CHARS - 1]}~"
        entry = Entry(entry.time, entry.level, entry.source, text, entry.kind, self._count)
        if not self.entries or (entry.time >= self.entries[-1].time and not is_before):
            self.entries.append(entry)
        elif is_before:
            at = next((i for i, e in enumerate(reversed(self.entries)) if e.time < entry.time), len(self.entries))
            self.entries.insert(len(self.entries) - at, entry)
        else:
            insort(self.entries, entry, key=lambda e: e.time)
        self.version += 1

    def _shorten(self) -> None:
        del self.entries[:-KEPT]


def matches(entries: Sequence[Entry], wanted: str) -> list[int]:
    """The places of the lines that hold the words, whatever their case."""
    wanted = wanted.lower()
    return [i for i, entry in enumerate(entries) if wanted in entry.text.lower()] if wanted else []
