"""How the program ends: asked, unasked, or because nobody is there. Not here: a terminal that is gone (watchdog.py)."""

import contextlib
import time
from weakref import WeakSet

from textual import events
from textual.app import App

from tui.config import Config
from tui.dialogs.base import Ask
from tui.screens.base import LiveScreen
from tui.snap import Snap
from tui.widgets.keybar import KeyBar
from tui.work import work

LAST_SECONDS = 60


class Leaving(App[int]):
    """Mixed into the program; `live` are its screens."""

    config: Config
    snap: Snap
    live: WeakSet[LiveScreen]

    def watch_the_keys(self) -> None:
        """From now on; the first key is the start itself."""
        self._last_key = time.monotonic()
        self.set_interval(1.0, self._idle)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.Paste | events.MouseDown):
            self._last_key = time.monotonic()
        await super().on_event(event)

    def _idle(self) -> None:
        """Leave when nobody is there: the last net under a terminal that went away without a word."""
        most = 60 * self.config["idle_exit_min"]
        left = most - (time.monotonic() - self._last_key)
        words = ""
        if most and left <= 0:
            self.rescue()
            self.exit(0, message=f"colibri tui left after {self.config['idle_exit_min']} min without a key")
        elif most and left < min(LAST_SECONDS, most / 2):
            words = f"no key for {(most - left) / 60:.0f} min: leaving in {left:.0f} s, any key stays"
        for bar in self.screen.query(KeyBar):
            bar.say(words)

    def unsaved(self) -> list[str]:
        """Names of text that would be lost."""
        return [name for screen in self.live if (name := screen.unsaved())]

    def rescue(self) -> None:
        """From any thread, at the last moment: each screen may write what is unsaved to a file."""
        for screen in list(self.live):
            with contextlib.suppress(Exception):
                screen.rescue()

    def leave(self) -> None:
        work(self, self._leave, group="leave", exclusive=True)

    async def _leave(self) -> None:
        names = self.unsaved()
        lines = [f"{name} has changes that are not saved." for name in names]
        if not names or await self.push_screen_wait(Ask("Quit", lines, "Quit and lose them")):
            self.leave_now()

    def leave_now(self) -> None:
        """Without a question; what is unsaved goes to files, and a swap goes on."""
        self.rescue()
        swap = self.snap.text("swap.id")
        self.exit(0, message=f"swap {swap} goes on; run colibri tui to see it" if swap else None)

    def leave_at_once(self, code: int) -> None:
        """From a signal's handler or another thread."""
        self.call_later(self.exit, code)
