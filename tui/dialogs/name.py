"""The name of a new profile, checked while it is typed. Not here: making it."""

import re
from collections.abc import Collection
from typing import ClassVar

from textual.app import ComposeResult
from textual.widgets import Input

from tui.dialogs.base import Lines
from tui.dialogs.typed import TypedDialog

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


class NewName(TypedDialog[str]):
    """A name that no profile has yet; the choice is off until there is one."""

    CHOICES: ClassVar[tuple[tuple[str, str], ...]] = (("make", "Edit it"),)

    def __init__(self, title: str, name: str, taken: Collection[str]) -> None:
        super().__init__()
        self.title_words = title
        self._name = name
        self._taken = set(taken)

    def content(self) -> ComposeResult:
        yield Lines(["Its name: small letters, digits, '.', '_' and '-'. It is saved when you save it in the editor."])
        yield Input(self._name, id="word", max_length=63, select_on_focus=False)
        yield Lines([" "], id="fault")

    def fault(self, value: str) -> str:
        """Why it is no name for a new profile, or empty."""
        if not value:
            return "type a name"
        if not NAME.fullmatch(value):
            return f"'{value}' is no profile name: small letters, digits, '.', '_' and '-', a letter or digit first"
        return f"'{value}' exists already" if value in self._taken else ""

    def gate(self, value: str) -> bool:
        fault = self.fault(value)
        self.query_one("#fault", Lines).set_lines([[(fault or "ok", "warning" if fault else "good")]])
        return not fault

    def answer(self, choice: str) -> str:
        return self.query_one("#word", Input).value
