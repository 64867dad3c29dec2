"""A window on the log book: it follows the newest line until somebody looks back. Not here: where lines come from."""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from tui.keymap import bind
from tui.logbook import Entry, Logbook, matches
from tui.panels.loglines import TIMES, Form, height, row
from tui.widgets.panel import Titled, looks_of, painted


class LogView(Titled, can_focus=True):
    """Moves by lines; the cursor is the line that `y` copies. Looking back ends following, `end` begins it again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bind("list.down", "move(1)", "Down", show=False, keys="j,down"),
        bind("list.up", "move(-1)", "Up", show=False, keys="k,up"),
        bind("list.page_down", "page(1)", "Page down", show=False, keys="space,pagedown"),
        bind("list.page_up", "page(-1)", "Page up", show=False, keys="b,pageup"),
        bind("list.top", "first", "First", show=False, keys="g,home"),
        bind("list.bottom", "last", "Last, and follow", show=False, keys="G,end"),
    ]

    @dataclass
    class Moved(Message):
        """What is shown has changed, or whether it follows."""

    def __init__(self, book: Logbook, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._title = "Logs"
        self._book = book
        self.level = "info"
        self.sources: tuple[str, ...] = ()  # none named: all
        self.times = TIMES[0]
        self.wraps = False
        self.follows = True
        self.wanted = ""
        self.entries: list[Entry] = []
        self._ends: list[int] = []  # rows up to and with each entry
        self._here = 0  # index of the cursor's entry
        self._top = 0  # row
        self._drawn: tuple[object, ...] = ()
        self._foot = Text()
        self._empty: list[Text] = []

    @property
    def form(self) -> Form:
        return Form(self.size.width, self.times, self.wraps, self.wanted)

    @property
    def room(self) -> int:
        """Rows for lines; the last row of the window belongs to the foot."""
        return max(self.size.height - 1, 1)

    @property
    def n_rows(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def here(self) -> Entry | None:
        """The line under the cursor."""
        return self.entries[self._here] if self._here < len(self.entries) else None

    def found(self) -> tuple[int, int]:
        """Which of the lines with the wanted words is under the cursor (0: none), and how many there are."""
        at = matches(self.entries, self.wanted)
        return (at.index(self._here) + 1 if self._here in at else 0), len(at)

    def copy_text(self) -> str:
        """What `y` copies."""
        return self.text_of(self.here) if self.here else ""

    def everything(self) -> str:
        """All lines as they are chosen now, whole."""
        return "".join(f"{self.text_of(entry)}\n" for entry in self.entries)

    def text_of(self, entry: Entry) -> str:
        """One line in full, with its date."""
        form = Form(10_000, "none" if entry.kind in ("gap", "mark") else "date")
        return row(entry, 0, form, looks_of(self.app)).plain.strip().rstrip("-").rstrip()

    def reload(self) -> None:
        """The book, or what is wanted of it, has changed; the line at the top stays where it is."""
        anchor = self._entry_at(self._top)
        here = self.here
        self.entries = self._book.seen(self.level, self.sources)
        form = self.form
        self._ends = list(accumulate(height(entry, form) for entry in self.entries))
        if self.follows:
            self._here = max(len(self.entries) - 1, 0)
            self._top = self._last_top()
        else:
            self._here = self._index_of(here)
            self._top = min(self._start(self._index_of(anchor)), self._last_top())
        self._paint()

    def search(self, wanted: str, step: int = 0) -> None:
        """Go to the next line with these words, or to the one before; step 0 is the newest above the cursor."""
        self.wanted = wanted.strip()
        at = matches(self.entries, self.wanted)
        if at and step:
            later = [i for i in at if i > self._here] or at
            earlier = [i for i in at if i < self._here] or at
            self._go(later[0] if step > 0 else earlier[-1])
        elif at:
            self._go(([i for i in at if i <= self._here] or at)[-1])
        self._paint()

    def action_move(self, n: int) -> None:
        self._go(self._here + n)

    def action_page(self, n: int) -> None:
        step = max(self.room - 1, 1)
        target = min(max(self._top + n * step, 0), max(self.n_rows - 1, 0))
        self._go(bisect_right(self._ends, target + (step if n > 0 else 0)))

    def action_first(self) -> None:
        self._go(0)

    def action_last(self) -> None:
        self.follows = True
        self.reload()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(3)

    def on_resize(self, _event: events.Resize) -> None:
        self.reload()

    def _go(self, index: int) -> None:
        """Put the cursor on a line and show it; going back from the newest ends following."""
        last = max(len(self.entries) - 1, 0)
        index = min(max(index, 0), last)
        if index < last:
            self.follows = False
        self._here = index
        start, end, room = self._start(index), self._ends[index] if self._ends else 0, self.room
        self._top = min(max(self._top, end - room), start)
        self._paint()

    def _start(self, index: int) -> int:
        return self._ends[index - 1] if 0 < index <= len(self._ends) else 0

    def _last_top(self) -> int:
        return max(self.n_rows - self.room, 0)

    def _entry_at(self, at: int) -> Entry | None:
        index = bisect_right(self._ends, at)
        return self.entries[index] if index < len(self.entries) else None

    def _index_of(self, entry: Entry | None) -> int:
        """Where a line is now; one that has gone leaves its place to the oldest, one that is hidden to the next."""
        if entry is None:
            return max(len(self.entries) - 1, 0)
        for i, other in enumerate(self.entries):
            if other.number == entry.number or other.time > entry.time:
                return i
        return max(len(self.entries) - 1, 0)

    def _paint(self) -> None:
        """Ask for a new picture when it would differ: lines that came below the window cost nothing."""
        rows = range(self._top, self._top + self.room)
        shown = tuple(entry.number if (entry := self._entry_at(y)) else 0 for y in rows)
        state = (shown, self._top - self._start(bisect_right(self._ends, self._top)), self._here, self.form)
        if state != self._drawn:
            self._drawn = state
            self.refresh()
        self.post_message(self.Moved())

    def render_line(self, y: int) -> Strip:
        looks = looks_of(self.app)
        if y >= self.room and self.size.height > 1:
            return self.strip(painted(self._foot, looks))
        index = bisect_right(self._ends, self._top + y)
        if not self.entries and y < len(self._empty):
            return self.strip(painted(self._empty[y], looks))
        if index >= len(self.entries):
            return Strip.blank(self.size.width, self.rich_style)
        is_here = index == self._here and not self.follows
        line = row(self.entries[index], self._top + y - self._start(index), self.form, looks, is_here)
        return self.strip(painted(line, looks))

    def foot(self, line: Text) -> None:
        """What stands in the last row."""
        if line.plain != self._foot.plain:
            self._foot = line
            self.refresh(Region(0, self.size.height - 1, self.size.width, 1))

    def empty(self, lines: list[Text]) -> None:
        """What is shown while there is no line."""
        if [line.plain for line in lines] != [line.plain for line in self._empty]:
            self._empty = lines
            self.refresh()
