"""The table of profiles: fixed columns by width, the cursor kept on its profile. Not here: where the rows come from."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import DataTable

from tui.panels.profiles import Columns, columns, row
from tui.snap import Facts
from tui.widgets.panel import looks_of
from tui.words import ascii_only, fit, plain

RIGHT = ("ctx", "slots", "threads")  # numbers, compared by eye


class ProfileTable(DataTable[Text]):
    """`show(profiles)` redraws what differs; `current` is the name under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
        Binding("g", "scroll_top", "Top", show=False),
        Binding("G", "scroll_bottom", "Bottom", show=False),
        Binding("enter", "select_cursor", "Open", id="list.open"),
    ]

    class Moved(Message):
        """The cursor stands on another profile."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(cursor_type="row", cell_padding=0, id=id)
        self._profiles: list[Facts] = []
        self._columns: Columns = ()
        self.current = ""

    def show(self, profiles: Sequence[Facts]) -> None:
        """These rows in this order; the cursor stays on the name it was on."""
        self._profiles = list(profiles)
        wanted = columns(self.size.width)
        if wanted != self._columns:
            self._columns = wanted
            self.clear(columns=True)
            for key, heading, width in wanted:
                words = heading.rjust(width - 1) if key in RIGHT else heading
                self.add_column(Text(words), key=key, width=width + 1)
        names = [profile.text("name", "?") for profile in self._profiles]
        if [key.value for key in self.rows] != names:
            self.clear()
            for name in names:
                self.add_row(*(Text("") for _ in wanted), key=name)
            if names:
                self.current = self.current if self.current in names else names[0]
                self.move_cursor(row=names.index(self.current), animate=False)
            else:
                self.current = ""
        for profile in self._profiles:
            self._fill(profile)

    def _fill(self, profile: Facts) -> None:
        looks, name = looks_of(self.app), profile.text("name", "?")
        cells = row(profile)
        if name == self.current:
            cells["mark"] = (f">{cells['mark'][0].strip()}", "")
        for key, _, width in self._columns:
            words, meaning = cells[key]
            shown = fit(plain(words), width, looks.more)
            if key in RIGHT:
                shown = shown.rstrip().rjust(width - 1) + " "
            text = Text(ascii_only(shown) if looks.ascii else shown, no_wrap=True)
            text.stylize(looks.style(meaning), 0, len(shown.rstrip()))  # in mono a word is reversed, not its room
            if self.get_cell(name, key) != text:
                self.update_cell(name, key, text)

    def facts(self, name: str) -> Facts:
        """The row of that name, empty when there is none."""
        return next((profile for profile in self._profiles if profile.text("name", "?") == name), Facts())

    def stand_on(self, name: str) -> None:
        """Move the cursor to a name that is there."""
        names = [profile.text("name", "?") for profile in self._profiles]
        if name in names:
            self.move_cursor(row=names.index(name), animate=False)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        event.stop()
        before, now = self.current, event.row_key.value or ""
        if now and now != before:
            self.current = now
            for name in (before, now):
                if (profile := self.facts(name)) and name in self.rows:
                    self._fill(profile)
            self.post_message(self.Moved())

    def on_resize(self, _event: events.Resize) -> None:
        self.show(self._profiles)

    def copy_text(self) -> str:
        """What `y` copies: the row under the cursor."""
        profile = self.facts(self.current)
        cells = row(profile)
        return "  ".join(words for key, (words, _) in cells.items() if key != "mark") if profile else ""
