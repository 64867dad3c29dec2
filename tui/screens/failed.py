"""What takes the place of a screen that could not even be made. Not here: a screen that fails later (base.py)."""

from tui.faults import Fault
from tui.screens.base import LiveScreen


class FailedScreen(LiveScreen):
    """Says what went wrong; `r` asks for the screen anew."""

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self._first = fault

    def on_mount(self) -> None:
        self.program.faults.append(self._first)
        self.fail(self._first)
