"""Closing an edit with text that was not saved. Not here: saving."""

from typing import ClassVar

from textual.app import ComposeResult

from tui.dialogs.base import Dialog, Lines


class Close(Dialog[str]):
    """Answers save or discard; None keeps the edit open."""

    CHOICES: ClassVar[tuple[tuple[str, str], ...]] = (("save", "Save and close"), ("discard", "Close without saving"))

    def __init__(self, name: str) -> None:
        super().__init__()
        self.title_words = f"{name} has unsaved text"
        self._name = name

    def content(self) -> ComposeResult:
        yield Lines([f"The text of {self._name} was changed and not saved.", "With errors it is saved as a draft."])

    def answer(self, choice: str) -> str:
        return choice
