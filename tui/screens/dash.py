"""The dashboard: is it serving, how fast, what is the limit, who waits. Not here: the lines of each panel."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal

from tui import local
from tui.containers import Containers, Look
from tui.keymap import bind
from tui.looks import Looks
from tui.panels.batch import batch
from tui.panels.engine import engine, engine_strip
from tui.panels.events import events
from tui.panels.host import host
from tui.panels.memory import memory, memory_strip
from tui.panels.picture import Picture
from tui.panels.pieces import wrapped
from tui.panels.speed import speed
from tui.screens.base import LiveScreen
from tui.snap import Snap
from tui.widgets.panel import Line, Panel, Titled
from tui.widgets.requests import RequestTable
from tui.work import work

Renderer = Callable[[Snap, Looks, int, int], Picture]
RENDERERS: dict[str, Renderer] = {
    "engine": engine, "speed": speed, "memory": memory, "host": host, "batch": batch, "events": events,
}  # fmt: skip
STRIPS: dict[str, Renderer] = {"engine": engine_strip, "memory": memory_strip}
STRIP_ROWS = 3
# Where the panels' facts are shown in full.
OPENS = {"requests": "queue", "engine": "profiles", "speed": "bench", "memory": "memory", "host": "memory",
         "batch": "batch", "events": "logs", "can-do": "logs"}  # fmt: skip
BLIP_S = 3.0  # a link that is lost for less does not change the picture
DOCKER_EVERY_S = 2.0
CAN_DO = (
    ("r", "try again now"),
    ("7", "the log so far; on the host the container's own too"),
    ("q", "leave; an engine that runs goes on"),
    ("", "keys that change something are off and shown in ( )"),
)


class DashScreen(LiveScreen):
    """Seven panels at 100 columns and more; at 80 the engine with its speed, memory with the host, requests, events."""

    tab: ClassVar[str] = "dash"
    FILTERS: ClassVar[bool] = True
    AUTO_FOCUS = "#requests"
    BINDINGS: ClassVar[list[BindingType]] = [bind("list.open", "open", "Open", tooltip="the screen with more of it")]
    CSS = """
    DashScreen .titled { padding: 0 1; }
    DashScreen #top { height: 8; }
    DashScreen #middle { height: 7; }
    DashScreen #requests { height: 1fr; width: 1fr; }
    DashScreen #events { height: 5; }
    DashScreen #can-do { display: none; height: 1fr; }
    DashScreen.-short #events { display: none; }
    DashScreen.-narrow #top, DashScreen.-narrow #middle { height: auto; layout: vertical; }
    DashScreen.-narrow #engine, DashScreen.-narrow #memory { height: 5; }
    DashScreen.-narrow #batch, DashScreen.-narrow #events { height: 3; display: block; }
    DashScreen.-narrow #speed, DashScreen.-narrow #host { display: none; }
    DashScreen.-narrow.-no-batch #batch, DashScreen.-narrow.-has-batch #events { display: none; }
    DashScreen.-unlinked #requests { display: none; }
    DashScreen.-unlinked #can-do { display: block; }
    DashScreen.-unlinked.-narrow #batch, DashScreen.-unlinked.-narrow #events { display: none; }
    DashScreen #body .-zoom-path { display: block; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.containers: Containers | None = None
        self._docker = Look()
        self._docker_at = 0.0

    def body(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Panel("Engine", id="engine")
            yield Panel("Speed", id="speed")
            yield Panel("Memory", id="memory")
        with Horizontal(id="middle"):
            yield Panel("Host", id="host")
            yield Panel("Batch", id="batch")
        yield RequestTable(id="requests")
        yield Panel("What you can do", id="can-do")
        yield Panel("Events", id="events")

    def panels(self) -> list[Titled]:
        """The requests come first, they are what a person looks for; without a link, what can be done instead."""
        first, other = ("can-do", "requests") if self.has_class("-unlinked") else ("requests", "can-do")
        found = [panel for panel in super().panels() if panel.id != other]
        return sorted(found, key=lambda panel: panel.id != first)

    def show(self, snap: Snap) -> None:
        is_lost = not snap.link.is_up and (not snap.is_known or snap.age_s > BLIP_S)
        if is_lost != self.has_class("-unlinked"):
            self.set_class(is_lost, "-unlinked")
            self._hand_focus("#can-do" if is_lost else "#requests", "#requests" if is_lost else "#can-do")
        self.set_class(snap.has("batch"), "-has-batch")
        self.set_class(not snap.has("batch"), "-no-batch")
        self.query_one(RequestTable).show(snap)
        for name, renderer in RENDERERS.items():
            self._draw(name, renderer, snap)
        if is_lost:
            self._show_can_do(snap)

    def _hand_focus(self, to: str, away: str) -> None:
        if self.query_one(away).has_focus:
            self.query_one(to).focus()
            if self._zoomed is not None:
                self.call_after_refresh(self._arrange)

    def _draw(self, name: str, renderer: Renderer, snap: Snap) -> None:
        panel = self.query_one(f"#{name}", Panel)
        width, height = panel.size
        if not panel.display or not width:
            return
        title = name.capitalize()
        if name == "memory" and not snap.link.is_up and (alive := local.alive(snap)):
            snap, title = alive, "Memory (live, of this machine)"
            panel.mark_stale("")
        draw = STRIPS.get(name, renderer) if height <= STRIP_ROWS else renderer
        picture = draw(snap, self.program.looks, width, height)
        panel.show(picture.lines, title, picture.right)

    def _show_can_do(self, snap: Snap) -> None:
        """What works without a link, and what docker knows of the engine where it can be asked."""
        looks, docker, panel = self.program.looks, self._docker, self.query_one("#can-do", Panel)
        lines: list[Line] = []
        if docker.engine is not None:
            lines += wrapped(f"docker says: {docker.engine.words}", panel.size.width)
        lines += [looks.line((f"{key:3}", "strong"), words) for key, words in CAN_DO]
        panel.show(lines)
        panel.mark_stale("")
        if time.monotonic() - self._docker_at > DOCKER_EVERY_S:
            self._docker_at = time.monotonic()
            work(self, partial(self._ask_docker, snap.link.url), "docker", exclusive=True)

    async def _ask_docker(self, url: str) -> None:
        self.containers = self.containers or Containers(url)
        self._docker = await asyncio.to_thread(self.containers.look, False)

    def action_next_panel(self, step: int) -> None:
        """In the order of importance, not of place."""
        stops = [panel for panel in self.panels() if panel.focusable and panel.region]
        if self._zoomed is not None or not stops:
            super().action_next_panel(step)
            return
        at = next((i for i, panel in enumerate(stops) if panel.has_focus), -1 if step > 0 else 0)
        stops[(at + step) % len(stops)].focus()

    def filter(self, text: str) -> None:
        """Narrow the requests: words, or state:waiting lane:batch model:qwen id:10a4."""
        self.query_one(RequestTable).narrow(text)

    def action_open(self) -> None:
        panel = next((p for p in self.panels() if p.has_focus), None)
        if panel is not None and panel.id in OPENS:
            self.program.switch_mode(OPENS[panel.id])
