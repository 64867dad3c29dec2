"""The log lines of the service. Not here: containers."""

from typing import ClassVar

from textual.app import ComposeResult

from tui.screens.base import LiveScreen
from tui.snap import Snap
from tui.widgets.panel import Panel


class LogsScreen(LiveScreen):
    """Panels of one snapshot."""

    tab: ClassVar[str] = "logs"

    def body(self) -> ComposeResult:
        yield Panel("Log", id="log")

    def show(self, snap: Snap) -> None:
        self.query_one("#log", Panel).show([f"state {snap.word}"])
