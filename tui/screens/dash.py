"""The dashboard: is it serving, how fast, what is the limit, who waits. Not here: the lines of each panel."""

from typing import ClassVar

from textual.app import ComposeResult

from tui.screens.base import LiveScreen
from tui.snap import Snap
from tui.widgets.panel import Panel


class DashScreen(LiveScreen):
    """Panels of one snapshot."""

    tab: ClassVar[str] = "dash"

    def body(self) -> ComposeResult:
        yield Panel("Engine", id="engine")

    def show(self, snap: Snap) -> None:
        self.query_one("#engine", Panel).show([f"state {snap.word}"])
