"""The log lines of every source that can be read, by time. Not here: fetching (logfeed.py), docker (containers.py).

They are asked for while the screen is seen. Without a link it keeps what it has and reads the container's own log.
"""

import asyncio
import time
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from tui import local
from tui.containers import Containers, Look
from tui.kernel import KernelLog
from tui.keymap import bind
from tui.logbook import KEPT, LEVELS, SOURCES, Entry, Logbook
from tui.logfeed import Feed
from tui.panels.loglines import LEVELS as LEVEL_WORDS
from tui.panels.loglines import SHORT, TIMES
from tui.panels.picture import Part, cut
from tui.panels.pieces import plain, wrapped
from tui.screens.base import LiveScreen
from tui.snap import Snap
from tui.units import clock, count
from tui.widgets.logview import LogView
from tui.work import work

DOCKER_EVERY_S = 2.0
KERNEL_S = 24 * 3600  # older kernel lines explain nothing that is seen now
WIDE = 100


class LogsScreen(LiveScreen):
    """One window on the book; its keys choose what of it is shown."""

    tab: ClassVar[str] = "logs"
    FILTERS: ClassVar[bool] = True
    AUTO_FOCUS = "#log"
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("list.filter", "open_filter", "Find", priority=True),
        bind("logs.follow", "follow", "Follow", tooltip="stay at the newest line, or stop"),
        bind("list.next", "find(1)", "Next", tooltip="next line with the words"),
        bind("list.previous", "find(-1)", "Prev", tooltip="the one before"),
        bind("logs.level", "level", "Level", tooltip="hide what is less urgent"),
        bind("logs.source", "source", "Source", tooltip="all, or one alone"),
        bind("logs.time", "time", "Time", tooltip="with date, without time"),
        bind("logs.wrap", "wrap", "Wrap", tooltip="long lines whole"),
        bind("logs.mark", "mark", "Mark", tooltip="a line with the time now"),
        bind("app.write", "write_log", "Write file", tooltip="all lines that are chosen"),
    ]
    CSS = "LogsScreen #log { height: 1fr; width: 1fr; padding: 0 1 0 0; }"

    def __init__(self) -> None:
        super().__init__()
        self.book = Logbook()
        self.containers: Containers | None = None
        self._feed: Feed | None = None
        self._kernel = KernelLog()
        self._docker = Look()
        self._docker_at = 0.0
        self._seen = -1
        self._wake = asyncio.Event()

    def body(self) -> ComposeResult:
        yield LogView(self.book, id="log")

    @property
    def view(self) -> LogView:
        return self.query_one("#log", LogView)

    @property
    def feed(self) -> Feed:
        if self._feed is None:
            self._feed = Feed(self.program.client, self.book, time.monotonic)
        return self._feed

    def on_mount(self) -> None:
        self.containers = self.containers or Containers(self.program.client.url)
        work(self, self._poll, "logs", exclusive=True)

    def on_screen_resume(self) -> None:
        self._wake.set()

    # Reading

    async def _poll(self) -> None:
        while True:
            if self.is_current and not self.program.pace.is_paused:
                await self._look()
            self._wake.clear()
            try:
                async with asyncio.timeout(self.program.pace.period_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _look(self) -> None:
        is_up = self.program.snap.link.is_up
        if is_up:
            await self.feed.read()
        if time.monotonic() - self._docker_at >= DOCKER_EVERY_S:
            self._docker_at = time.monotonic()
            found = await asyncio.to_thread(self._look_around, not is_up, local.is_here(self.program.snap))
            self.book.add(found, time.monotonic(), is_backlog=True)
        self._reload()

    def _look_around(self, with_lines: bool, is_here: bool) -> list[Entry]:
        """In a thread. The container writes what the service tells us by itself: its lines only without a link."""
        assert self.containers is not None
        self._docker = self.containers.look(with_lines, self.feed.last_time)
        found = list(self._docker.entries)
        if is_here or self._docker.engine is not None:
            found += [entry for entry in self._kernel.read() if time.time() - entry.time < KERNEL_S]
        return found

    def show(self, snap: Snap) -> None:
        self.feed.take(snap.events)
        self.view.mark_stale("")  # lines have their own times, and docker's are new
        self._reload()

    def _reload(self) -> None:
        if self.book.version != self._seen:
            self._seen = self.book.version
            self.view.reload()
        self._say()

    # Saying what is shown

    def on_log_view_moved(self, message: LogView.Moved) -> None:
        message.stop()
        self._say()

    def _say(self) -> None:
        view, is_wide = self.view, self.size.width >= WIDE
        at, n = view.found()
        words = ["FOLLOW" if view.follows else "follow off (f, end)"]
        words.append(f"{'level' if is_wide else ''}>={LEVEL_WORDS[view.level][0]}")
        words += [f"{'find ' if is_wide else ''}'{view.wanted}' {at}/{n}"] if view.wanted else []
        sources = " ".join(view.sources) or "all"
        view.caption(f"Logs  {sources}", "  ".join(words))
        looks, width = self.program.looks, max(view.size.width, 1)
        view.foot(cut(looks.line(*self._foot(is_wide)), width, looks.more))
        reasons = [plain(line) for fault in self.faults() for line in wrapped(fault, width - 2, " ! ")]
        view.empty([looks.line(line) for line in (" no lines of this level and these sources", *reasons)])

    def _foot(self, is_wide: bool) -> list[Part]:
        """How many lines there are and where they come from; without a link what cannot be read, and why."""
        faults = self.faults()
        if faults and not self.program.snap.link.is_up:
            return [" ", (f"! {faults[0]}", "warning")]
        names = [(source, source if is_wide else SHORT.get(source, source[:3])) for source in self.book.sources()]
        wanted = self.view.sources or [source for source, _ in names]
        marks = [f"[{'x' if source in wanted else ' '}]{name}" for source, name in names]
        missing = f"   not here: {', '.join(fault.split(':')[0] for fault in faults)}" if faults and is_wide else ""
        return [(f" {count(len(self.book.entries))} of {KEPT:,} lines   {' '.join(marks)}{missing}", "dim")]

    def faults(self) -> list[str]:
        """Which sources cannot be read, each with what is missing; a lost link is the banner's."""
        service = [f"service: {self.feed.fault}"] if self.feed.fault and self.program.snap.link.is_up else []
        return [fault for fault in (*service, self._docker.fault, self._kernel.fault) if fault]

    # Keys

    def filter(self, text: str) -> None:
        """`/` finds: the newest line with the words above the cursor; n and N go on from there."""
        self.view.search(text)

    def action_find(self, step: int) -> None:
        if self.view.wanted:
            self.view.search(self.view.wanted, step)
        else:
            self.action_open_filter()

    def action_follow(self) -> None:
        if self.view.follows:
            self.view.follows = False
            self.view.reload()
        else:
            self.view.action_last()

    def action_level(self) -> None:
        self.view.level = LEVELS[(LEVELS.index(self.view.level) + 1) % len(LEVELS)]
        self.view.reload()

    def action_source(self) -> None:
        """All, then each source that has lines alone, then all again."""
        choices: list[tuple[str, ...]] = [(), *((source,) for source in self.book.sources())]
        at = choices.index(self.view.sources) if self.view.sources in choices else -1
        self.view.sources = choices[(at + 1) % len(choices)]
        self.view.reload()

    def action_time(self) -> None:
        self.view.times = TIMES[(TIMES.index(self.view.times) + 1) % len(TIMES)]
        self.view.reload()

    def action_wrap(self) -> None:
        self.view.wraps = not self.view.wraps
        self.view.reload()

    def action_mark(self) -> None:
        now = time.time()
        self.book.mark(now, clock(now))
        self._reload()

    def action_write_log(self) -> None:
        if path := self.program.keep("log", self.view.everything()):
            self.notify(f"{count(len(self.view.entries))} lines written to {path}", markup=False)

    def command(self, word: str, rest: list[str]) -> bool:
        """`:logs api warning`: the source, or `all`, and the level."""
        if word != "logs":
            return False
        sources = [name for name in rest if name in SOURCES]
        levels = [level for name in rest for level in LEVELS if name.lower() in (level, LEVEL_WORDS[level][0].lower())]
        if unknown := [name for name in rest if name not in (*sources, "all") and not levels]:
            words = f"logs: '{unknown[0]}' is no source and no level; there are all, {', '.join((*SOURCES, *LEVELS))}"
            self.notify(words, severity="warning", markup=False)
        self.view.sources = tuple(sources)
        self.view.level = levels[0] if levels else self.view.level
        self.view.reload()
        return True
