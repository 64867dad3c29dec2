"""The program: its screens, and the one snapshot they all show. Not here: what its keys do (actions.py), HTTP."""

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.filter import LineFilter, NoColor
from textual.message_pump import MessagePump
from textual.screen import ModalScreen, Screen
from textual.signal import Signal
from textual.widgets import Input, TextArea

from tui import papers
from tui.actions import Actions
from tui.client import Client
from tui.config import Config
from tui.dialogs.base import Ask
from tui.faults import Fault, Shielded
from tui.keymap import MODES, TABS, bind, checked
from tui.link import Poller
from tui.looks import Looks
from tui.names import hint
from tui.pace import Pace
from tui.plain_filter import PlainSigns
from tui.problems import Problem, problems
from tui.screens.base import LiveScreen
from tui.screens.failed import FailedScreen
from tui.snap import Snap
from tui.theme import OWN, first_theme
from tui.widgets.keybar import KeyBar

T = TypeVar("T")
BETWEEN = "between"
SCREENS = {
    BETWEEN: "tui.screens.base:LiveScreen",
    "dash": "tui.screens.dash:DashScreen", "profiles": "tui.screens.profiles:ProfilesScreen",
    "queue": "tui.screens.places:QueuePlace", "batch": "tui.screens.places:BatchPlace",
    "memory": "tui.screens.places:MemoryPlace", "bench": "tui.screens.places:BenchPlace",
    "logs": "tui.screens.logs:LogsScreen", "chat": "tui.screens.places:ChatPlace",
    "help": "tui.screens.help:HelpScreen", "swap": "tui.screens.swap:SwapScreen",
}  # fmt: skip
KEY_WORDS = {"enter": "enter", "escape": "esc", "tab": "tab", "shift+tab": "shift+tab", "space": "space",
             "up": "up", "down": "down", "left": "left", "right": "right", "home": "home", "end": "end",
             "pageup": "pgup", "pagedown": "pgdn", "backspace": "backspace", "delete": "del"}  # fmt: skip
# What terminals take by OSC 52 without an answer; k9s stops at the same length.
MOST_CLIPBOARD_BYTES = 74 * 1024
LAST_SECONDS = 60
WIDTHS = [(0, "-mini"), (80, "-narrow"), (100, "-wide"), (160, "-xwide")]
HEIGHTS = [(0, "-flat"), (24, "-short"), (32, "-tall")]
NAVIGATION = [bind(f"nav.{i}", f"go('{mode}')", name, show=False)
              for i, (mode, name) in enumerate(zip(MODES, TABS, strict=True), 1)]  # fmt: skip
BROKEN_START = 70


def _screen(mode: str) -> Callable[[], Screen[Any]]:
    """A screen's module is imported when it is first shown: the first paint does not wait for the others."""

    def make() -> Screen[Any]:
        module, name = SCREENS[mode].split(":")
        try:
            made: Screen[Any] = getattr(import_module(module), name)()
        except Exception as error:
            return FailedScreen(Fault(error, f"screen {mode}"))
        return made

    return make


class ColibriApp(Actions, Shielded, App[int]):
    """`snap` is what is known; `client` asks; `looks` says how to draw; `ask(dialog)` waits for an answer."""

    TITLE = "Colibri"
    CSS_PATH = "theme.tcss"
    ENABLE_COMMAND_PALETTE = False
    MODES: ClassVar[dict[str, Any]] = {name: _screen(name) for name in SCREENS}
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = [
        *NAVIGATION,
        bind("link.retry", "retry", "Retry now"),
        bind("link.start", "start_again", "Start again"),
        bind("app.swap", "swap", "Swap", tooltip="change the profile in force"),
        bind("app.pause", "pause", "Pause", tooltip="hold the picture still"),
        bind("app.slower", "slower", "Slower", show=False, tooltip="ask less often"),
        bind("app.faster", "faster", "Faster", show=False, tooltip="ask more often"),
        bind("app.copy", "copy", "Copy", tooltip="this panel to the clipboard and a file"),
        bind("app.write", "write", "Write", tooltip="the screen to a file"),
        bind("app.refresh", "refresh_now", "Refresh now", show=False),
        bind("app.redraw", "redraw", "Redraw", show=False, tooltip="paint everything anew"),
        bind("app.theme", "theme", "Next theme", show=False),
        bind("app.suspend", "suspend", "Suspend", show=False, tooltip="back to the shell; fg brings it back"),
        # In the program's own queue, so that letters typed right behind `:` find the line open.
        bind("app.command", "command", "Command", show=False, tooltip="go or do by name", priority=True),
        bind("app.command_typing", "command_typing", "Command", show=False, tooltip="the same, also while typing"),
        bind("app.back", "back", "Back", show=False, tooltip="clear, close; never quits"),
        bind("app.help", "help", "Help", tooltip="these keys"),
        bind("app.quit", "leave", "Quit"),
        bind("app.quit_now", "leave_now", "Quit at once", show=False, priority=True),
    ]  # fmt: skip

    def __init__(self, client: Client, config: Config | None = None, *, looks: Looks | None = None,
                 pace: Pace | None = None, key_file: str = "") -> None:  # fmt: skip
        self.looks = looks or Looks()
        self.config = config or Config()
        # Textual reads it from the instance, in __init__.
        self.DEFAULT_MODE = self.config["start_screen"]  # type: ignore[misc]
        super().__init__()
        for theme in OWN:
            self.register_theme(theme)
        self.no_color = self.looks.mono
        self.client = client
        self.pace = pace or Pace(self.config["refresh_s"] or 1.0)
        self.is_readonly: bool = self.config["readonly"]
        self.snap = Snap()
        self.snap_signal: Signal[Snap] = Signal(self, "snap")
        self.poller = Poller(client, self.pace, self._hear, key_file)
        self.profile_names: list[str] = []
        self.faults: list[Fault] = []
        self.live: WeakSet[LiveScreen] = WeakSet()
        self.swap_watch: Any = None
        self.help_from: Screen[Any] | None = None
        self.before_help = "dash"
        self._own_problems = list(self.config.problems)
        self._no_colour, self._plain_signs = NoColor(), PlainSigns()
        self._last_key = time.monotonic()
        self._is_up = False
        self.set_class(self.looks.ascii, "-ascii")
        if (fault := self.use_theme(first_theme(self.looks.colours, self.config["theme"]))) and not self.looks.mono:
            self._own_problems.append(f"theme: {fault}")
            self.theme = first_theme(self.looks.colours)
        keymap, wrong = checked(self.config.keymap)
        self._own_problems += wrong
        self.set_keymap(keymap)

    # Life

    def on_mount(self) -> None:
        self.set_interval(1.0, self._idle)
        # An old docker client gives the window's size late: ask for it once more.
        self.set_timer(0.3, lambda: os.kill(os.getpid(), signal.SIGWINCH))
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """After the first paint: what takes time to import."""
        self._is_up = True
        try:
            self.swap_watch = import_module("tui.flows").SwapWatch(self)
        except Exception as error:
            self.fault(error, self)
        self.run_worker(self.poller.poll(), group="poll", exclusive=True, exit_on_error=False)
        self.run_worker(self.poller.listen(), group="listen", exclusive=True, exit_on_error=False)

    async def on_unmount(self) -> None:
        await self.client.close()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """What theme.tcss asks for and a theme of Textual does not know."""
        theme = self.current_theme
        return {"border-rest": "#7A8494", "border-focus": theme.primary, "title": theme.foreground or theme.primary}

    def clear_selection(self) -> None:
        """Textual calls it while a first screen is still being made, where tasks start eagerly (Python 3.12 on)."""
        if self.screen_stack:
            super().clear_selection()

    def get_line_filters(self) -> list[LineFilter]:
        """Nothing leaves that the tier forbids, whatever a widget asked for: no colour in mono, no sign above 0x7e."""
        mono = [self._no_colour] if self.looks.mono else []
        return [*super().get_line_filters(), *mono, *([self._plain_signs] if self.looks.ascii else [])]

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.Paste | events.MouseDown):
            self._last_key = time.monotonic()
        await super().on_event(event)

    def _hear(self, snap: Snap) -> None:
        before, self.snap = (self.snap.word, self.why_not()), snap
        if self.swap_watch is not None and snap.link.is_up:
            with contextlib.suppress(Exception):
                self.swap_watch.see(snap)
        self.snap_signal.publish(snap)
        if before != (snap.word, self.why_not()):
            self.screen.refresh_bindings()

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

    # Faults of this program

    def fault(self, error: Exception, source: MessagePump) -> None:
        """Keep a fault to its screen; the program goes on."""
        if not self.screen_stack:
            return  # on the way out: Textual still hands out events, and there is nothing to show them on
        screen = source if isinstance(source, LiveScreen) else self.screen
        fault = Fault(error, f"{type(source).__name__} on {type(screen).__name__}")
        self.faults.append(fault)
        if isinstance(screen, LiveScreen):
            screen.fail(fault)
        elif isinstance(screen, ModalScreen):
            self.notify(f"this dialog failed: {fault.words}; details: {fault.file}", severity="error", markup=False)

    def _handle_exception(self, error: Exception) -> None:
        """What Textual itself caught: after the first paint a fault like any other, before it the end of the start."""
        if self._is_up:
            self.fault(error, self)
            return
        fault = Fault(error, "start")
        self._exit_renderables.clear()
        super().exit(BROKEN_START, BROKEN_START, f"colibri tui could not start: {fault.words}; details: {fault.file}")
        self._close_messages_no_wait()

    async def run_action(self, *args: Any, **kwargs: Any) -> bool:
        """As Textual's, with what an action raises kept to the screen."""
        try:
            return await super().run_action(*args, **kwargs)
        except Exception as error:
            self.fault(error, self)
            return True

    async def remake(self, screen: LiveScreen) -> None:
        """The mode of a screen that failed, begun anew; what lies over a first screen is closed instead."""
        screen.rescue()
        if screen is not self.screen_stack[0]:
            await self.pop_screen()
            return
        mode = self.current_mode
        await self.switch_mode(BETWEEN)
        await self.remove_mode(mode)
        self.add_mode(mode, _screen(mode))
        await self.switch_mode(mode)

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
        found = problems(self.snap)
        if self.swap_watch is not None and (words := self.swap_watch.banner()):
            found.append(Problem(words, meaning="working"))
        if self._own_problems:
            more = f"  (and {len(self._own_problems) - 1} more: colibri tui config)" if self._own_problems[1:] else ""
            found.append(Problem(f"settings: {self._own_problems[0]}{more}", meaning="warning"))
        return found

    @property
    def is_typing(self) -> bool:
        """Whether letters go into a text."""
        return bool(self.screen_stack) and isinstance(self.screen.focused, Input | TextArea)

    def describe(self, binding: Binding) -> str:
        """A key's words in the key line; some of them change."""
        if binding.action == "pause":
            return "Go on" if self.pace.is_paused else "Pause"
        return binding.description

    def get_key_display(self, binding: Binding) -> str:
        if re.fullmatch(r"f\d+", binding.key):
            return binding.key.upper()
        return binding.key_display or KEY_WORDS.get(binding.key) or super().get_key_display(binding)

    async def ask(self, dialog: ModalScreen[T]) -> T | None:
        """Show a dialog and wait for its answer; call it from a worker."""
        return await self.push_screen_wait(dialog)

    def start_swap(self, name: str | None = None, note: str = "") -> None:
        """The review of a swap to `name`; without one it is picked first."""
        flows = import_module("tui.flows")
        self.run_worker(flows.start(self, name, note), group="swap", exit_on_error=False)

    def tell_screen(self, mode: str, word: str, rest: list[str]) -> None:
        """Go to a screen and let it do a command."""
        self.switch_mode(mode)
        self.call_later(self._tell, word, rest)

    def _tell(self, word: str, rest: list[str]) -> None:
        screen = self.screen_stack[0]
        if isinstance(screen, LiveScreen) and not screen.command(word, rest):
            self.notify(f"this screen has no '{word}' yet", severity="warning", markup=False)

    def copy(self, text: str, name: str) -> Path | None:
        """Give the text to the terminal's clipboard and to a file, and say both: the clipboard gives no answer."""
        n_bytes = len(text.encode("utf-8", "replace"))
        told = []
        if n_bytes <= MOST_CLIPBOARD_BYTES:
            self.copy_to_clipboard(text)
            told.append("copied (OSC 52)")
        else:
            told.append(f"too long for the clipboard ({n_bytes >> 10} KB, it takes {MOST_CLIPBOARD_BYTES >> 10})")
        path = self._keep(name, text)
        told.append(f"written to {path}" if path else "not written to a file")
        self.notify("; ".join(told), markup=False)
        return path

    def _keep(self, name: str, text: str) -> Path | None:
        try:
            return papers.keep(name, text)
        except OSError as error:
            self.notify(f"no file was written: {error}", severity="error", markup=False)
            return None

    # Looks and rates, for keys and commands

    def use_theme(self, name: str) -> str:
        """Take a theme; what is wrong with the name, or an empty string."""
        if self.looks.colours != "full" and name not in ("colibri-16", "ansi-dark", "ansi-light"):
            return f"this terminal has {self.looks.colours} colours; themes need 256"
        if name not in self.available_themes:
            return f"there is no theme '{name}'{hint(name, self.available_themes)}"
        self.theme = name
        self.use_looks(dark=self.current_theme.dark)
        return ""

    def use_looks(self, *, ascii: bool | None = None, mono: bool | None = None, dark: bool | None = None) -> None:
        """Change signs or colours while running; everything is painted anew."""
        before = self.looks
        if ascii is not None:
            self.looks = replace(self.looks, ascii=ascii)
        if dark is not None:
            self.looks = replace(self.looks, dark=dark)
        if mono is not None and mono != self.looks.mono:
            self.looks = replace(self.looks, colours="mono" if mono else "full")
            self.no_color = mono
            self.theme = first_theme(self.looks.colours)
        if self.looks != before and self._is_up:
            self.set_class(self.looks.ascii, "-ascii")
            self.refresh_css(animate=False)
            for screen in self.live:
                screen.redress()
            self.snap_signal.publish(self.snap)

    def use_rate(self, seconds: float) -> None:
        self.pace.choose(seconds)
        self.poller.now()

    def set_readonly(self) -> None:
        """One way: what may look only is not to be talked round."""
        self.is_readonly = True
        self.screen.refresh_bindings()
        self.snap_signal.publish(self.snap)

    def write_report(self) -> None:
        """What is known, as text, without keys: for a person who was not there."""
        link = self.snap.link
        facts = json.dumps(dict(self.snap.facts.raw), indent=1, sort_keys=True, default=str)
        lines = [f"service  {link.url}", f"state    {self.snap.word}", f"error    {link.error or 'none'}", "",
                 *(f"fault    {fault.words}" for fault in self.faults), "", facts, "", self.picture()]  # fmt: skip
        if path := self._keep("report", "\n".join(lines)):
            self.notify(f"report written to {path}", markup=False)

    def picture(self) -> str:
        """The screen as text."""
        strips = self.screen._compositor.render_strips()
        return "\n".join(strip.text[: self.size.width].rstrip() for strip in strips)

    # Leaving

    def unsaved(self) -> list[str]:
        """Names of text that would be lost."""
        return [name for screen in self.live if (name := screen.unsaved())]

    def rescue(self) -> None:
        """From any thread, at the last moment: each screen may write what is unsaved to a file."""
        for screen in list(self.live):
            with contextlib.suppress(Exception):
                screen.rescue()

    def leave(self) -> None:
        self.run_worker(self._leave(), group="leave", exclusive=True, exit_on_error=False)

    async def _leave(self) -> None:
        names = self.unsaved()
        lines = [f"{name} has changes that are not saved." for name in names]
        if not names or await self.ask(Ask("Quit", lines, "Quit and lose them")):
            self.action_leave_now()

    def leave_at_once(self, code: int) -> None:
        """From a signal's handler or another thread."""
        self.call_later(self.exit, code)
