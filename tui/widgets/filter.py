"""The line under a list where `/` takes a text to narrow it by. Not here: what is narrowed."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static


class FilterLine(Horizontal):
    """Hidden until opened; enter goes back to the list and keeps the text, esc clears it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "clear", "Clear", show=False)]

    _came_from: Widget | None = None

    class Changed(Message):
        """The text is another."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def compose(self) -> ComposeResult:
        yield Static(" / ", markup=False)
        yield Input(placeholder="words to look for; enter keeps, esc clears")

    @property
    def text(self) -> str:
        """What is looked for."""
        return self.query_one(Input).value

    def open(self) -> None:
        self._came_from = self.screen.focused
        self.display = True
        self.screen.set_focus(self.query_one(Input))  # at once: focus() waits behind the keys of a burst

    def clear(self) -> None:
        self.action_clear()

    def action_clear(self) -> None:
        self.query_one(Input).value = ""
        self._leave()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Changed(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._leave()

    def _leave(self) -> None:
        self.display = bool(self.text)
        if self.query_one(Input).has_focus:
            self.screen.set_focus(self._came_from)
