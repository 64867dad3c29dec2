"""Text that a program which ended left behind: take it, leave it, or throw it away. Not here: where it lies."""

from typing import ClassVar

from textual.app import ComposeResult

from tui.dialogs.base import Dialog, Lines
from tui.rescue import Rescued
from tui.units import clock


class Found(Dialog[str]):
    """Answers take or drop; None leaves the copy where it is, to be asked about again."""

    CANCEL: ClassVar[str] = "Leave it"
    CHOICES: ClassVar[tuple[tuple[str, str], ...]] = (("take", "Take it"), ("drop", "Throw it away"))

    def __init__(self, name: str, found: Rescued) -> None:
        super().__init__()
        self.title_words = f"Unsaved text of {name} was found"
        self._found = found

    def content(self) -> ComposeResult:
        when, n = clock(self._found.at, "%Y-%m-%d %H:%M"), len(self._found.text.splitlines())
        yield Lines([
            f"{n} lines from {when} were not saved when their window went away.",
            "Taken into the editor they replace nothing until you save.",
            f"They lie in {self._found.path}",
        ])  # fmt: skip

    def answer(self, choice: str) -> str:
        return choice
