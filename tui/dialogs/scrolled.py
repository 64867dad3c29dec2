"""The long part of a dialog: it scrolls before the choices would leave the window. Not here: its lines."""

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from tui.dialogs.base import Dialog, T

FRAME = 4  # border, the empty line above the choices, and the choices, in rows


class Body(VerticalScroll, can_focus=False):
    """What scrolls."""

    DEFAULT_CSS = "Body { height: auto; width: 1fr; scrollbar-size-vertical: 1; }"


class ScrolledDialog(Dialog[T]):
    """It yields one `Body` in `content()`, with `below` rows of widgets under it. Arrows and page keys move it."""

    below: ClassVar[int] = 0
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "scroll(1)", "Down", show=False),
        Binding("up,k", "scroll(-1)", "Up", show=False),
        Binding("pagedown", "scroll(10)", "Page down", show=False),
        Binding("pageup", "scroll(-10)", "Page up", show=False),
    ]

    def on_mount(self) -> None:
        self._fit()

    def on_resize(self, _event: events.Resize) -> None:
        self._fit()

    def _fit(self) -> None:
        self.query_one(Body).styles.max_height = max(1, self.room - FRAME - self.below)

    def action_scroll(self, rows: int) -> None:
        self.query_one(Body).scroll_relative(y=rows, animate=False)
