"""The program: its screens, its keys, the one snapshot they all show. Not here: a screen's content, HTTP, the poller."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.filter import LineFilter, NoColor
from textual.screen import ModalScreen, Screen
from textual.signal import Signal

from tui.client import Client
from tui.keymap import MODES, TABS, bind
from tui.link import Poller
from tui.looks import Looks
from tui.pace import Pace
from tui.problems import Problem, problems
from tui.snap import Snap
from tui.theme import OWN, first_theme

T = TypeVar("T")
SCREENS = {
    "dash": "tui.screens.dash:DashScreen", "profiles": "tui.screens.profiles:ProfilesScreen",
    "queue": "tui.screens.places:QueuePlace", "batch": "tui.screens.places:BatchPlace",
    "memory": "tui.screens.places:MemoryPlace", "bench": "tui.screens.places:BenchPlace",
    "logs": "tui.screens.logs:LogsScreen", "chat": "tui.screens.places:ChatPlace",
    "help": "tui.screens.help:HelpScreen", "swap": "tui.screens.swap:SwapScreen",
}  # fmt: skip


def _screen(where: str) -> Callable[[], Screen[Any]]:
    """A screen's module is imported when it is first shown: the first paint does not wait for the others."""

    def make() -> Screen[Any]:
        module, name = where.split(":")
        made: Screen[Any] = getattr(import_module(module), name)()
        return made

    return make


class ColibriApp(App[int]):
    """`snap` is what is known; `client` asks; `looks` says how to draw; `ask(dialog)` waits for an answer."""

    TITLE = "Colibri"
    CSS_PATH = "theme.tcss"
    MODES: ClassVar[dict[str, Any]] = {name: _screen(where) for name, where in SCREENS.items()}
    DEFAULT_MODE = "dash"
    HORIZONTAL_BREAKPOINTS: ClassVar[Any] = [(0, "-mini"), (80, "-narrow"), (100, "-wide"), (160, "-xwide")]
    VERTICAL_BREAKPOINTS: ClassVar[Any] = [(0, "-flat"), (24, "-short"), (32, "-tall")]
    BINDINGS: ClassVar[list[BindingType]] = [
        *(bind(f"nav.{i}", f"go('{mode}')", name, show=False) for i, (mode, name) in enumerate(zip(MODES, TABS), 1)),
        bind("app.swap", "swap", "Swap"),
        bind("app.pause", "pause", "Pause"),
        bind("app.slower", "slower", "Slower", show=False),
        bind("app.faster", "faster", "Faster", show=False),
        bind("app.copy", "copy", "Copy"),
        bind("app.write", "write", "Write"),
        bind("app.refresh", "refresh_now", "Refresh now", show=False),
        bind("app.redraw", "redraw", "Redraw", show=False),
        bind("app.theme", "theme", "Next theme", show=False),
        bind("app.command", "command_palette", "Command", show=False),
        bind("app.back", "back", "Back", show=False),
        bind("app.help", "help", "Help"),
        bind("app.quit", "leave", "Quit"),
        bind("app.quit_now", "quit", "Quit at once", show=False, priority=True),
    ]

    def __init__(self, client: Client, *, looks: Looks | None = None, pace: Pace | None = None,
                 is_readonly: bool = False, key_file: str = "") -> None:  # fmt: skip
        self.looks = looks or Looks()
        super().__init__(ansi_color=None)
        for theme in OWN:
            self.register_theme(theme)
        self.no_color = self.looks.mono
        self.theme = first_theme(self.looks.colours)
        self.client = client
        self.pace = pace or Pace(1.0)
        self.is_readonly = is_readonly
        self.snap = Snap()
        self.snap_signal: Signal[Snap] = Signal(self, "snap")
        self.poller = Poller(client, self.pace, self._hear, key_file)
        self._no_colour = NoColor()
        self._before_help = "dash"
        self.set_class(self.looks.ascii, "-ascii")

    def get_line_filters(self) -> list[LineFilter]:
        """In mono every colour is taken away at the last moment, whatever a widget asked for."""
        return [*super().get_line_filters(), *([self._no_colour] if self.looks.mono else [])]

    def on_mount(self) -> None:
        self.run_worker(self.poller.poll(), group="poll", exclusive=True, exit_on_error=False)
        self.run_worker(self.poller.listen(), group="listen", exclusive=True, exit_on_error=False)

    async def on_unmount(self) -> None:
        await self.client.close()

    def _hear(self, snap: Snap) -> None:
        before, self.snap = (self.snap, self.why_not()), snap
        self.snap_signal.publish(snap)
        if (before[0].word, before[1]) != (snap.word, self.why_not()):
            self.screen.refresh_bindings()

    # What a screen asks

    def why_not(self) -> str:
        """Empty when changes can be asked for, else the reason in words."""
        if self.is_readonly:
            return "this is a read-only view"
        if not self.snap.link.is_up:
            return "there is no link to the service"
        return self.snap.api_fault

    def marks(self) -> list[str]:
        """The words that follow the state: RO, PAUSED, SLOW 5s, HOLD."""
        marks = ["RO"] * self.is_readonly + ["PAUSED"] * self.pace.is_paused
        return marks + [self.pace.slowed] * bool(self.pace.slowed) + ["HOLD"] * bool(self.snap.flag("hold"))

    def problems(self) -> list[Problem]:
        """What the banner shows, the worst first."""
        return problems(self.snap)

    def describe(self, binding: Binding) -> str:
        """A key's words in the key line; some of them change."""
        if binding.action == "pause":
            return "Go on" if self.pace.is_paused else "Pause"
        return binding.description

    async def ask(self, dialog: ModalScreen[T]) -> T | None:
        """Show a dialog and wait for its answer; call it from a worker."""
        return await self.push_screen_wait(dialog)

    def start_swap(self, name: str | None = None, note: str = "") -> None:
        """The review of a swap to `name`; without one it is picked first."""
        flows = import_module("tui.flows")
        self.run_worker(flows.start(self, name, note), group="swap", exclusive=True, exit_on_error=False)

    def copy(self, text: str, name: str) -> Path | None:
        """Give the text to the terminal's clipboard and to a file, and say both."""
        self.copy_to_clipboard(text)
        return None

    # Keys

    def action_go(self, mode: str) -> None:
        self.switch_mode(mode)

    def action_help(self) -> None:
        if self.current_mode != "help":
            self._before_help = self.current_mode
            self.switch_mode("help")

    def action_back(self) -> None:
        if len(self.screen_stack) > 1:
            self.pop_screen()
        elif self.current_mode == "help":
            self.switch_mode(self._before_help)

    def action_swap(self) -> None:
        self.start_swap()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return None if action == "swap" and self.why_not() else True

    def action_pause(self) -> None:
        self.pace.is_paused = not self.pace.is_paused
        self.poller.now()
        self.screen.refresh_bindings()
        self.snap_signal.publish(self.snap)

    def action_slower(self) -> None:
        self.pace.step(1)
        self.poller.now()

    def action_faster(self) -> None:
        self.pace.step(-1)
        self.poller.now()

    def action_refresh_now(self) -> None:
        self.poller.now()

    def action_redraw(self) -> None:
        self.refresh(repaint=True, layout=True)

    def action_theme(self) -> None:
        if self.looks.colours == "full":
            light = self.theme != "colibri-safe-light"
            self.theme = "colibri-safe-light" if light else "colibri-safe"
            self.looks = replace(self.looks, dark=not light)
            self.snap_signal.publish(self.snap)

    def action_copy(self) -> None:
        copy = getattr(self.focused, "copy_text", None)
        self.copy(copy() if copy else self.picture(), "screen")

    def action_write(self) -> None:
        self.copy(self.picture(), "screen")

    async def action_leave(self) -> None:
        self.exit(0)

    def picture(self) -> str:
        """The screen as text."""
        strips = self.screen._compositor.render_strips()
        return "\n".join(strip.text[: self.size.width].rstrip() for strip in strips)
