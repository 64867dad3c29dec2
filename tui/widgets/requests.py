"""The requests of a snapshot with a cursor that stays on its request. Not here: its lines (panels/requests.py)."""

from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.strip import Strip

from tui.keymap import bind
from tui.panels.requests import SORTS, Row, View, chosen, rows, table
from tui.snap import Snap
from tui.widgets.painting import changed_regions
from tui.widgets.panel import Titled, looks_of, painted


class RequestTable(Titled, can_focus=True):
    """Keys move the cursor, change the order and mark nothing; a filter narrows what is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bind("list.down", "move(1)", "Down", show=False, keys="j,down"),
        bind("list.up", "move(-1)", "Up", show=False, keys="k,up"),
        bind("list.page_down", "page(1)", "Page down", show=False, keys="pagedown"),
        bind("list.page_up", "page(-1)", "Page up", show=False, keys="pageup"),
        bind("list.top", "move(-100000)", "First", show=False, keys="g,home"),
        bind("list.bottom", "move(100000)", "Last", show=False, keys="G,end"),
        bind("list.sort", "sort", "Sort"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._title = "Requests"
        self._snap = Snap()
        self._rows: list[Row] = []
        self._lines: list[Text] = []
        self._here: str | None = None
        self._index = 0
        self._top = 0
        self._sort = SORTS[0]
        self._filter = ""

    @property
    def here(self) -> Row | None:
        """The row under the cursor."""
        return next((row for row in self._rows if row.id == self._here), None)

    @property
    def lines(self) -> list[str]:
        """What it shows, without styles."""
        return [line.plain for line in self._lines]

    def copy_text(self) -> str:
        """What `y` copies: the id of the request under the cursor."""
        return self.here.id if self.here else "\n".join(self.lines)

    def show(self, snap: Snap) -> None:
        """The requests of this snapshot. A cursor whose request has gone stays at its place."""
        self._snap = snap
        self._redraw()

    def narrow(self, wanted: str) -> None:
        """Show only the requests that fit the filter."""
        self._filter = wanted.strip()
        self._redraw()

    def action_sort(self) -> None:
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self._redraw()

    def action_move(self, n: int) -> None:
        self._index = max(0, min(self._index + n, len(self._rows) - 1))
        self._here = self._rows[self._index].id if self._rows else None
        self._redraw()

    def action_page(self, n: int) -> None:
        self.action_move(n * max(self.size.height - 2, 1))

    def on_resize(self, _event: events.Resize) -> None:
        self._redraw()

    def _redraw(self) -> None:
        looks, (width, height) = looks_of(self.app), self.size
        found = rows(self._snap)
        self._rows = chosen(found, self._sort, self._filter)
        self._follow()
        unlisted = max((self._snap.whole("n_waiting") or 0) - sum(row.state == "waiting" for row in found), 0)
        room = max(height - 1, 1)
        if len(self._rows) > room or unlisted:
            room = max(room - 1, 1)  # the last line says how many more there are
        self._top = max(0, min(self._top, self._index, len(self._rows) - room), self._index - room + 1)
        view = View(self._here, self._top, 0 if self._filter else unlisted)
        new = table(self._rows, view, looks, width, height)
        if len(new) == 1 and height > 1:
            word = "no request fits the filter" if self._filter and found else "no requests"
            new.append(looks.line((f"  {word}", "dim")))
        new = [painted(line, looks) for line in new]
        self.caption("Requests", self._caption(found, unlisted))
        regions = changed_regions(self._lines, new, width)
        self._lines = new
        if regions:
            self.refresh(*regions)

    def _follow(self) -> None:
        """Find the cursor's request again, wherever the order has put it."""
        ids = [row.id for row in self._rows]
        if self._here in ids:
            self._index = ids.index(self._here)
        else:
            self._index = max(0, min(self._index, len(ids) - 1))
            self._here = ids[self._index] if ids else None

    def _caption(self, found: list[Row], unlisted: int) -> str:
        waiting = sum(row.state == "waiting" for row in found) + unlisted
        words = [f"{len(found) - waiting + unlisted} running  {waiting} waiting"]
        words += [f"filter: {self._filter} ({len(self._rows)})"] if self._filter else []
        return "  ".join([*words, f"sort: {self._sort}"])

    def render_line(self, y: int) -> Strip:
        return self.strip(self._lines[y]) if y < len(self._lines) else Strip.blank(self.size.width, self.rich_style)
