"""The command line: a word typed, with what it could become above it. Not here: what the words do (commands.py)."""

from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from tui import commands
from tui.widgets.panel import Line, Titled, painted_lines
from tui.words import fit

if TYPE_CHECKING:
    from tui.app import ColibriApp

SHOWN = 8


class CommandBox(Titled, Vertical):
    """Its frame."""


class CommandLine(ModalScreen[str | None]):
    """Gives the line that was typed, or None; opened again with `fault`, it says what was wrong with it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close", show=False),
        Binding("up", "pick(-1)", "Previous", show=False, priority=True),
        Binding("down", "pick(1)", "Next", show=False, priority=True),
        Binding("tab", "complete", "Complete", show=False, priority=True),
    ]

    def __init__(self, first: str = "", fault: str = "") -> None:
        super().__init__()
        self._first = first
        self._picked = -1
        self._found: list[tuple[str, str]] = []
        self._fault = fault

    def compose(self) -> ComposeResult:
        with CommandBox(classes="titled", id="command"):
            yield Static("", id="choices", markup=False)
            hint = "a screen or a command; tab completes, esc closes"
            yield Input(self._first, id="line", placeholder=hint, select_on_focus=False)

    def on_mount(self) -> None:
        self.query_one(CommandBox).caption("Command")
        self.set_focus(self.query_one(Input))  # at once: focus() waits behind the keys of a burst
        self._draw()

    def on_key(self, event: events.Key) -> None:
        """Keys of a burst that came before the line had the focus: they were meant for it."""
        line = self.query(Input)
        if event.is_printable and event.character and not (line and line.first().has_focus):
            event.stop()
            if line:
                line.first().value += event.character
            else:
                self._first += event.character

    def on_input_changed(self, event: Input.Changed) -> None:
        self._picked = -1
        if event.value != self._first:
            self._fault = ""
        self._draw()

    def action_pick(self, step: int) -> None:
        if self._found:
            self._picked = (self._picked + step) % len(self._found) if self._picked >= 0 or step > 0 else -1
            self._draw()

    def action_complete(self) -> None:
        if self._found:
            words = self._found[max(self._picked, 0)][0]
            line = self.query_one(Input)
            line.value = f"{words} "
            line.cursor_position = len(line.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        line = self._found[self._picked][0] if self._picked >= 0 else event.value
        # One completion of an unfinished word is what was meant: `:prof` is `:profiles`.
        if line.strip() not in commands.COMMANDS and len(self._found) == 1 and " " not in line.strip():
            line = self._found[0][0]
        self.dismiss(line)

    def dismiss(self, result: str | None = None) -> AwaitComplete:
        """Close once, and only while it lies on top: else the screen that does would go."""
        return super().dismiss(result) if self.is_current else AwaitComplete()

    def _draw(self) -> None:
        program = cast("ColibriApp", self.app)
        self._found = commands.completions(self.query_one(Input).value, program.profile_names)
        width = max(self.size.width - 6, 10)
        first = max(0, min(self._picked - SHOWN + 1, len(self._found) - SHOWN))
        room = max(1, min(SHOWN, self.size.height - 6))
        lines: list[Line] = []
        for i, (words, help) in enumerate(self._found[first : first + room], first):
            text = fit(f" {words:<12} {help}", width)
            lines.append([(text, "cursor" if i == self._picked else "plain")])
        if self._fault:
            lines = [[(f"! {self._fault}", "warning")], *lines[: room - 1]]
        self.query_one("#choices", Static).update(painted_lines(lines, program.looks))
