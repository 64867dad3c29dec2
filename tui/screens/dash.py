"""The dashboard: is it serving, how fast, what is the limit, who waits. Not here: the lines of each panel."""

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal

from tui.keymap import bind
from tui.looks import Looks
from tui.panels.batch import batch
from tui.panels.engine import engine, engine_strip
from tui.panels.events import events
from tui.panels.host import host
from tui.panels.memory import memory, memory_strip
from tui.panels.picture import Picture
from tui.panels.speed import speed
from tui.screens.base import SMALL, LiveScreen
from tui.snap import Snap
from tui.widgets.finder import Finder
from tui.widgets.panel import Panel, Titled
from tui.widgets.requests import RequestTable

Renderer = Callable[[Snap, Looks, int, int], Picture]
RENDERERS: dict[str, Renderer] = {
    "engine": engine, "speed": speed, "memory": memory, "host": host, "batch": batch, "events": events,
}  # fmt: skip
STRIPS: dict[str, Renderer] = {"engine": engine_strip, "memory": memory_strip}
# Where the panels' facts are shown in full.
OPENS = {"requests": "queue", "engine": "profiles", "speed": "bench", "memory": "memory", "host": "memory",
         "batch": "batch", "events": "logs"}  # fmt: skip
TODO = (
    ("r", "try again now"),
    ("7", "the log: the lines that were read, and on the host the container's own"),
    ("q", "leave; an engine that runs goes on"),
    ("", "keys that change something are off and shown in ( )"),
)


class DashScreen(LiveScreen):
    """Seven panels at 100 columns and more; at 80 the engine with its speed, memory with the host, requests, batch."""

    tab: ClassVar[str] = "dash"
    AUTO_FOCUS = "#requests"
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("list.filter", "filter", "Filter"),
        bind("list.open", "open", "Open"),
    ]
    CSS = """
    DashScreen .titled { padding: 0 1; }
    DashScreen #top { height: 8; }
    DashScreen #middle { height: 7; }
    DashScreen #requests { height: 1fr; width: 1fr; }
    DashScreen #events { height: 5; }
    DashScreen #todo { display: none; height: 1fr; }
    DashScreen.-short #events { display: none; }
    DashScreen.-narrow #top, DashScreen.-narrow #middle { height: auto; layout: vertical; }
    DashScreen.-narrow #engine, DashScreen.-narrow #memory { height: 5; }
    DashScreen.-narrow #batch, DashScreen.-narrow #events { height: 3; display: block; }
    DashScreen.-narrow #speed, DashScreen.-narrow #host { display: none; }
    DashScreen.-narrow.-no-batch #batch, DashScreen.-narrow.-has-batch #events { display: none; }
    DashScreen.-unlinked #requests { display: none; }
    DashScreen.-unlinked #todo { display: block; }
    DashScreen.-unlinked.-narrow #batch, DashScreen.-unlinked.-narrow #events { display: none; }
    """

    def body(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Panel("Engine", id="engine")
            yield Panel("Speed", id="speed")
            yield Panel("Memory", id="memory")
        with Horizontal(id="middle"):
            yield Panel("Host", id="host")
            yield Panel("Batch", id="batch")
        yield RequestTable(id="requests")
        yield Panel("What you can do", id="todo")
        yield Panel("Events", id="events")
        yield Finder("filter: words, or state:waiting lane:batch id:10a4", id="filter")

    def panels(self) -> list[Titled]:
        """The requests come first: they are what a person looks for."""
        return sorted(super().panels(), key=lambda panel: panel.id != "requests")

    def show(self, snap: Snap) -> None:
        looks, is_small = self.program.looks, self._is_small()
        table = self.query_one(RequestTable)
        has_requests = snap.link.is_up or bool(snap.rows("running") or snap.rows("waiting"))
        self.set_class(not has_requests, "-unlinked")
        self.set_class(not snap.has("batch"), "-no-batch")
        self.set_class(snap.has("batch"), "-has-batch")
        table.show(snap)
        for name, renderer in RENDERERS.items():
            panel = self.query_one(f"#{name}", Panel)
            if not panel.display or not panel.size.width:
                continue
            width, height = panel.size
            draw = STRIPS.get(name, renderer) if is_small and height < 6 else renderer
            picture = draw(snap, looks, width, height)
            panel.show(picture.lines, None, picture.right)
        if not has_requests:
            self.query_one("#todo", Panel).show([looks.line((f"{key:3}", "strong"), words) for key, words in TODO])

    def _is_small(self) -> bool:
        return self.has_class("-narrow") or self.size.width < SMALL[0]

    def action_next_panel(self, step: int) -> None:
        """In the order of importance, not of place."""
        stops = [panel for panel in self.panels() if panel.focusable and panel.region]
        if self._zoomed is not None or not stops:
            super().action_next_panel(step)
            return
        at = next((i for i, panel in enumerate(stops) if panel.has_focus), -1 if step > 0 else 0)
        stops[(at + step) % len(stops)].focus()

    def action_filter(self) -> None:
        self.query_one(Finder).open(self.query_one(RequestTable).filter)

    def action_open(self) -> None:
        panel = next((p for p in self.panels() if p.has_focus), None)
        if panel is not None and panel.id in OPENS:
            self.program.switch_mode(OPENS[panel.id])

    @on(Finder.Typed)
    def _typed(self, event: Finder.Typed) -> None:
        self.query_one(RequestTable).narrow(event.text)
