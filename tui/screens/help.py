"""The keys of the screen it was asked from. Not here: what they do."""

from typing import ClassVar

from textual.app import ComposeResult

from tui.screens.base import LiveScreen
from tui.snap import Snap
from tui.widgets.panel import Panel


class HelpScreen(LiveScreen):
    """Panels of one snapshot."""

    tab: ClassVar[str] = "help"

    def body(self) -> ComposeResult:
        yield Panel("Help", id="help")

    def show(self, snap: Snap) -> None:
        self.query_one("#help", Panel).show([f"state {snap.word}"])
