"""The program: its screens, and the one snapshot they all show. Not here: what its keys do (actions.py), HTTP."""

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet

from textual.app import App
from textual.binding import Binding, BindingType
from textual.message_pump import MessagePump
from textual.screen import ModalScreen, Screen
from textual.signal import Signal
from textual.widgets import Input, TextArea
from textual.worker import Worker, WorkerState

from tui import papers
from tui.actions import Actions
from tui.client import Client
from tui.config import Config
from tui.dress import Dress
from tui.faults import Fault, Shielded
from tui.keymap import MODES, TABS, bind, checked
from tui.leaving import Leaving
from tui.link import Poller
from tui.looks import Looks
from tui.pace import Pace
from tui.problems import Problem, problems
from tui.screens.base import LiveScreen
from tui.screens.failed import FailedScreen
from tui.snap import Snap
from tui.work import work

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
# What terminals take by OSC 52 without an answer; k9s stops at the same length.
MOST_CLIPBOARD_BYTES = 74 * 1024
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


class ColibriApp(Actions, Dress, Leaving, Shielded, App[int]):
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
        self.put_on()
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
        self._is_up = False
        if (fault := self.use_theme(self.config["theme"])) and self.looks.colours == "full":
            self._own_problems.append(f"theme: {fault}")
        keymap, wrong = checked(self.config.keymap)
        self._own_problems += wrong
        self.set_keymap(keymap)

    # Life

    def on_mount(self) -> None:
        self.watch_the_keys()
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
        self._follow("poll")
        self._follow("listen")

    def _follow(self, what: str) -> None:
        run = self.poller.poll if what == "poll" else self.poller.listen
        work(self, run, group=what, exclusive=True)

    async def on_unmount(self) -> None:
        await self.client.close()

    def clear_selection(self) -> None:
        """Textual calls it while a first screen is still being made, where tasks start eagerly (Python 3.12 on)."""
        if self.screen_stack:
            super().clear_selection()

    def _hear(self, snap: Snap) -> None:
        before, self.snap = (self.snap.word, self.why_not()), snap
        if self.swap_watch is not None and snap.link.is_up:
            try:
                self.swap_watch.see(snap)
            except Exception as error:
                self.fault(error, self)
        self.snap_signal.publish(snap)
        if before != (snap.word, self.why_not()):
            self.screen.refresh_bindings()

    # Faults of this program

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A worker's fault is one of the screen that is seen; without the poller there is no program, so it goes on."""
        worker = event.worker
        if event.state is WorkerState.ERROR and isinstance(worker.error, Exception):
            self.fault(worker.error, self)
            if worker.group in ("poll", "listen"):
                self.set_timer(1.0, lambda: self._follow(worker.group))

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

    async def ask(self, dialog: ModalScreen[T]) -> T | None:
        """Show a dialog and wait for its answer; call it from a worker."""
        return await self.push_screen_wait(dialog)

    def start_swap(self, name: str | None = None, note: str = "") -> None:
        """The review of a swap to `name`; without one it is picked first."""
        flows = import_module("tui.flows")
        work(self, partial(flows.start, self, name, note), group="swap")

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
        path = self.keep(name, text)
        told.append(f"written to {path}" if path else "not written to a file")
        self.notify("; ".join(told), markup=False)
        return path

    def keep(self, name: str, text: str, ending: str = "txt") -> Path | None:
        """Write a text to a file of the user's; where none can be written, say so."""
        try:
            return papers.keep(name, text, ending)
        except OSError as error:
            self.notify(f"no file was written: {error}", severity="error", markup=False)
            return None

    # What keys and commands do with it

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
        if path := self.keep("report", "\n".join(lines)):
            self.notify(f"report written to {path}", markup=False)

    def picture(self) -> str:
        """The screen as text."""
        strips = self.screen._compositor.render_strips()
        return "\n".join(strip.text[: self.size.width].rstrip() for strip in strips)
