"""A line to type a filter or something to find, at the bottom of a screen's body. Not here: what is filtered."""

from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input


class Finder(Input):
    """Hidden until `open`; each letter is told. Enter keeps what was typed, escape takes it back."""

    DEFAULT_CSS = "Finder { dock: bottom; display: none; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", "Clear and close", id="finder.clear"),
        Binding("enter", "keep", "Keep and close", id="finder.keep"),
    ]

    @dataclass
    class Typed(Message):
        """The text so far."""

        finder: "Finder"
        text: str

        @property
        def control(self) -> "Finder":
            return self.finder

    @dataclass
    class Closed(Typed):
        """The line is closed; the text is empty when it was taken back."""

    def __init__(self, placeholder: str, *, id: str | None = None) -> None:
        super().__init__(placeholder=placeholder, id=id, select_on_focus=False)
        self._back_to: Widget | None = None

    def open(self, text: str = "") -> None:
        """Show the line with this text and type in it."""
        self._back_to = self.screen.focused
        self.display = True
        with self.prevent(Input.Changed):
            self.value = text
        self.cursor_position = len(text)
        self.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(self, event.value))

    def action_keep(self) -> None:
        self._close(self.value)

    def action_give_up(self) -> None:
        self._close("")

    def _close(self, text: str) -> None:
        self.display = False
        if self._back_to is not None and self._back_to.is_attached:
            self._back_to.focus()
        self.post_message(self.Closed(self, text))
