"""A dialog with one field to type in; its choice is off until the text is right. Not here: which text is."""

from typing import TypeVar

from textual import events
from textual.widgets import Input

from tui.dialogs.base import Choice, Dialog

T = TypeVar("T")


class TypedDialog(Dialog[T]):
    """Its field is `#word`, its one choice beside Cancel is gated by `gate`; Cancel still has the first focus."""

    AUTO_FOCUS = "#cancel"

    def gate(self, value: str) -> bool:
        """Whether the choice may be taken with this text: any, where a dialog does not say otherwise."""
        return True

    def on_mount(self) -> None:
        self._gate()

    def on_key(self, event: events.Key) -> None:
        """The first letter takes the focus from Cancel into the field."""
        field = self.query_one("#word", Input)
        if event.is_printable and event.character and event.character != " " and not field.has_focus:
            event.stop()
            event.prevent_default()
            field.focus()
            field.insert_text_at_cursor(event.character)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._gate()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter in the field goes to the choice; a second enter takes it."""
        event.stop()
        if self.gate(event.value):
            self._choice.focus()

    @property
    def _choice(self) -> Choice:
        return self.query_one(f"#{self.CHOICES[0][0]}", Choice)

    def _gate(self) -> None:
        self._choice.allow(self.gate(self.query_one("#word", Input).value))
