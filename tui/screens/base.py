"""What every screen shares: chrome, sizes, zoom, and that it listens only while it is seen. Not here: any content.

A screen fills `body()` with widgets and gets `show(snap)` for each snapshot. A fault in either shows as a panel that
failed; the rest of the program goes on.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from tui.faults import Fault, Shielded
from tui.keymap import bind
from tui.snap import Snap
from tui.units import count, speed
from tui.widgets.banner import Banner
from tui.widgets.filter import FilterLine
from tui.widgets.keybar import KeyBar
from tui.widgets.panel import Panel, Titled
from tui.widgets.status import StatusLine
from tui.widgets.tabs import TabLine

if TYPE_CHECKING:
    from tui.app import ColibriApp

TINY = (60, 16)
SMALL = (80, 24)


class LiveScreen(Shielded, Screen[None]):
    """A screen with status line, tabs, banner, `body()` and key line."""

    tab: ClassVar[str] = ""  # the tab that is marked
    FILTERS: ClassVar[bool] = False  # whether `/` opens a line whose text goes to `filter`
    CHANGING: ClassVar[frozenset[str]] = frozenset()  # actions that change something: off without a link, or read-only
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("app.next_panel", "next_panel(1)", "Next panel", show=False),
        bind("app.previous_panel", "next_panel(-1)", "Previous panel", show=False),
        bind("link.retry", "try_again", "Retry this panel"),
        bind("list.filter", "open_filter", "Filter", priority=True),
        bind("app.back", "back", "Back", show=False, tooltip="clear, close; never quits"),
        bind("app.zoom", "zoom", "Zoom"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._zoomed: Titled | None = None
        self._is_zoom_chosen = False
        self._last_focus: Widget | None = None
        self._failure: Fault | None = None

    @property
    def program(self) -> "ColibriApp":
        """The app, with its own type."""
        return cast("ColibriApp", self.app)

    def body(self) -> ComposeResult:
        """The widgets between the tabs and the key line."""
        yield from ()

    def show(self, snap: Snap) -> None:
        """Paint one snapshot; called only while this screen is the visible one."""

    def command(self, word: str, rest: list[str]) -> bool:
        """Do a word of the command line that belongs to this screen; False when it is not known here."""
        return False

    def filter(self, text: str) -> None:
        """Narrow what is shown to what holds the text; called at each key while `/` is open, when FILTERS is true."""

    def unsaved(self) -> str:
        """The name of text that would be lost by leaving, or an empty string."""
        return ""

    def rescue(self) -> None:
        """Write what is unsaved to a file, quickly, from any thread, without raising."""

    def compose(self) -> ComposeResult:
        yield StatusLine()
        yield TabLine(self.tab)
        yield Banner(id="banner")
        with Container(id="body"):
            try:
                yield from self.body()
            except Exception as error:
                self.program.fault(error, self)
        yield Static("", id="small", markup=False)
        yield FilterLine(id="filter")
        yield KeyBar()

    def on_mount(self) -> None:
        self.program.live.add(self)
        self.program.snap_signal.subscribe(self, self._hear)
        self.call_after_refresh(self.apply)

    def on_unmount(self) -> None:
        self.program.live.discard(self)

    def on_screen_resume(self) -> None:
        self.apply()

    def _hear(self, _snap: Snap) -> None:
        if self.is_current:  # also below a dialog
            self.apply()

    def apply(self) -> None:
        """Paint the newest snapshot, chrome and content."""
        if not self.is_mounted:
            return
        program, snap = self.program, self.program.snap
        with self.app.batch_update():
            self.query_one(StatusLine).show(snap, program.looks, program.marks())
            self.query_one(TabLine).show(program.looks)
            if self.has_class("-tiny"):
                self.query_one("#small", Static).update(self._small_words())
            self.query_one(Banner).set(program.problems(), *self.size)
            for panel in self.panels():
                panel.mark_stale(snap.stale)
            if self._failure is None:
                try:
                    self.show(snap)
                except Exception as error:
                    self.program.fault(error, self)

    def redress(self) -> None:
        """The looks changed: titles hold signs of their own."""
        for panel in self.query(Titled):
            panel.redress()
        self.query_one(KeyBar).refresh()

    def fail(self, fault: Fault) -> None:
        """Show a fault in place of the content, until `r`."""
        if self._failure is None:
            self._failure = fault
            self.call_later(self._show_fault, fault)

    async def _show_fault(self, fault: Fault) -> None:
        body = self.query_one("#body")
        for child in body.children:
            child.display = False
        panel = Panel("! This panel failed")
        await body.mount(panel)
        panel.show(fault.lines(), right="r to retry")
        panel.focus()
        self.refresh_bindings()

    def action_try_again(self) -> None:
        """This screen made anew in place of the one that failed; by the program, since this one goes."""
        self.program.call_later(self.program.remake, self)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Off and in ( ) when the action changes something and nothing can be changed now."""
        if action == "try_again":
            return self._failure is not None
        if action == "open_filter":
            return self.FILTERS and not self.program.is_typing
        return None if action in self.CHANGING and self.program.why_not() else True

    # The filter's line, and the way back

    def action_open_filter(self) -> None:
        self.query_one(FilterLine).open()

    def on_filter_line_changed(self, message: FilterLine.Changed) -> None:
        message.stop()
        self.filter(message.text)

    async def action_back(self) -> None:
        """Clear the filter, then the zoom, then close what lies over the first screen; never quits."""
        line = self.query_one(FilterLine)
        if line.text:
            line.clear()
        elif self._is_zoom_chosen:
            self.action_zoom()
        else:
            await self.program.action_back()

    # Panels: focus order, zoom, one at a time in a small window

    def panels(self) -> list[Titled]:
        """The framed parts in the order they were composed, hidden ones too."""
        return list(self.query("#body Titled").results(Titled))

    def action_next_panel(self, step: int) -> None:
        stops = [panel for panel in self.panels() if _can_hold_focus(panel)]
        if self._zoomed is None or not stops:
            (self.focus_next if step > 0 else self.focus_previous)()
            return
        at = stops.index(self._zoomed) if self._zoomed in stops else -1
        self._zoom_on(stops[(at + step) % len(stops)])

    def action_zoom(self) -> None:
        self._is_zoom_chosen = not self._is_zoom_chosen
        self._arrange()

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        tiny = width < TINY[0] or height < TINY[1]
        self.set_class(tiny, "-tiny")
        if tiny:
            self.query_one("#small", Static).update(self._small_words())
        self._arrange()
        self.call_after_refresh(self.apply)
        self.call_after_refresh(self._give_back_focus)

    def _give_back_focus(self) -> None:
        """A window too small to show the focused widget takes the focus from it; a larger one gives it back."""
        last = self._last_focus
        if self.focused is None and last is not None and last.is_attached and last.focusable and self.is_current:
            self.set_focus(last, scroll_visible=False)

    def _small_words(self) -> str:
        """What is left below 60x16: state, queue, speed, and how to see more."""
        snap = self.program.snap
        facts = f"{snap.word}  queue {count(snap.num('n_waiting'))}  {speed(snap.num('speeds.now_per_second'))}"
        return f"{facts}\nwindow is {self.size.width}x{self.size.height}, 80x24 shows more"

    def _arrange(self) -> None:
        """Zoom or not, by what was chosen and by the size of the window."""
        width, height = self.size
        if self._is_zoom_chosen or width < SMALL[0] or height < SMALL[1]:
            stops = [panel for panel in self.panels() if _can_hold_focus(panel)]
            focused = next((panel for panel in stops if panel.has_focus or panel.has_focus_within), None)
            if stops:
                self._zoom_on(focused or self._zoomed or stops[0])
        else:
            self._zoom_on(None)

    def _zoom_on(self, panel: Titled | None) -> None:
        self._zoomed = panel
        body = self.query_one("#body")
        path = {panel, *(panel.ancestors if panel else ())}
        for widget in _tree(body):
            widget.set_class(panel is not None and widget in path, "-zoom-path")
            widget.set_class(panel is not None and widget not in path, "-hidden-by-zoom")
        if panel is not None:
            target = panel if panel.focusable else next((w for w in panel.query("*") if w.focusable), None)
            if target is not None and not panel.has_focus_within:
                target.focus()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """While one panel is shown alone, the focus takes the picture with it."""
        self._last_focus = event.widget
        if self._zoomed is not None:
            panel = next((p for p in self.panels() if p is event.widget or p in event.widget.ancestors), None)
            if panel is not None and panel is not self._zoomed:
                self._zoom_on(panel)


def _tree(body: Widget) -> Iterator[Widget]:
    """The widgets down to the panels; what is inside a panel stays as it is."""
    for child in body.children:
        yield child
        if not isinstance(child, Titled):
            yield from _tree(child)


def _can_hold_focus(panel: Titled) -> bool:
    return panel.can_focus or any(child.can_focus for child in panel.query("*"))
