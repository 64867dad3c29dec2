"""Somebody else saved the profile meanwhile: mine, theirs, or look at both first. Not here: saving."""

from typing import ClassVar

from textual.app import ComposeResult

from tui.dialogs.base import Dialog, Lines
from tui.panels.pieces import Line
from tui.snap import Facts
from tui.units import clock


class Conflict(Dialog[str]):
    """Answers mine, theirs or diff; None leaves everything as it is. No answer loses a character of the text."""

    CHOICES: ClassVar[tuple[tuple[str, str], ...]] = (
        ("mine", "Keep mine"), ("theirs", "Take theirs"), ("diff", "Show both"))  # fmt: skip

    def __init__(self, name: str, theirs: Facts) -> None:
        super().__init__()
        self.title_words = f"{name} was changed meanwhile"
        last = next(iter(theirs.rows("history")), Facts())
        by = f" by {last.text('by')}" if last.text("by") else ""
        self._saved = f"rev {theirs.text('rev', '?')}, saved {clock(last.num('saved'))}{by}"

    def content(self) -> ComposeResult:
        lines: list[Line] = [
            f"The server's text is not the one this edit began with: {self._saved}.",
            "",
            "Keep mine    saves this text as a newer revision; theirs stays in the history.",
            "Take theirs  shows the server's text; yours goes to a rescue file first.",
            "Show both    compares the two and changes nothing.",
        ]
        yield Lines(lines)

    def answer(self, choice: str) -> str:
        return choice
