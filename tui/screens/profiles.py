"""The profiles: which there are and which would fit. Not here: editing, the swap."""

from typing import ClassVar

from textual.app import ComposeResult

from tui.screens.base import LiveScreen
from tui.snap import Snap
from tui.widgets.panel import Panel


class ProfilesScreen(LiveScreen):
    """Panels of one snapshot."""

    tab: ClassVar[str] = "profiles"

    def body(self) -> ComposeResult:
        yield Panel("Profiles", id="list")

    def show(self, snap: Snap) -> None:
        self.query_one("#list", Panel).show([f"state {snap.word}"])
