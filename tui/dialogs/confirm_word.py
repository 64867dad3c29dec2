"""A question that is answered by typing a word: for what cannot be taken back. Not here: doing it."""

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.widgets import Input

from tui.dialogs.base import Lines
from tui.dialogs.typed import TypedDialog
from tui.panels.pieces import Line


class ConfirmWord(TypedDialog[bool]):
    """True only after `word` was typed and the choice taken."""

    CHOICES: ClassVar[tuple[tuple[str, str], ...]] = (("yes", "Delete"),)

    def __init__(self, title: str, lines: Iterable[Line], word: str) -> None:
        super().__init__()
        self.title_words = title
        self._lines = list(lines)
        self._word = word

    def content(self) -> ComposeResult:
        yield Lines([*self._lines, "", f"Type {self._word} to confirm:"])
        yield Input(id="word", max_length=100, select_on_focus=False)

    def gate(self, value: str) -> bool:
        return value == self._word

    def answer(self, choice: str) -> bool:
        return True
