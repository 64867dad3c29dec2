"""Brings log lines and events of the service into the book, each once. Not here: when to ask, containers.

Lines are asked for after the last id that was read. Where more have come than a screen can show, the newest are taken
and the rest is named in a line; so a flood costs two questions a look, however large it is.
"""

from collections.abc import Callable, Sequence

from tui.client import Client, ClientError
from tui.logbook import Entry, Kind, Logbook
from tui.snap import Facts
from tui.units import count

PAGE = 500
LOGGED = ("swap", "worker")  # kinds of events that are written to the log in the same words
BACKLOG = 1000  # lines to begin with: about 100 kB


class Feed:
    """`read` asks the service, `take` brings events; `fault` says why there are no lines."""

    def __init__(self, client: Client, book: Logbook, clock: Callable[[], float]) -> None:
        self._client = client
        self._book = book
        self._clock = clock
        self._boot = ""
        self._after: int | None = None
        self._events: dict[str, None] = {}
        self.fault = ""
        self.last_time = 0.0  # when the newest line of the service was written

    async def read(self) -> None:
        """One look at GET /admin/logs. A service that does not answer leaves everything as it is."""
        try:
            await self._read()
            self.fault = ""
        except ClientError as error:
            self.fault = "it has no log to read, it is older" if error.status == 404 else error.message

    async def _read(self) -> None:
        is_new = self._after is None
        page = await self._page(limit=BACKLOG) if is_new else await self._page(limit=PAGE, after=self._after or 0)
        boot = page.text("boot")
        if self._boot and boot != self._boot:
            self._book.gap("the service was started anew; lines of the last seconds before may be missing")
            page, is_new = await self._page(limit=BACKLOG), True
        self._boot = boot
        known = 0 if is_new else self._after or 0
        lines = [line for line in page.rows("lines") if (line.whole("id") or known + 1) > known]
        lost = page.whole("dropped") or 0
        if len(lines) >= PAGE and not is_new:
            last = _last_id(lines, 0)
            page = await self._page(limit=PAGE)
            more = [line for line in page.rows("lines") if (line.whole("id") or 0) > last]
            lost += max((more[0].whole("id") or 0) - last - 1, 0) if more else 0
            lines += more
        entries = [_entry(line) for line in lines]
        if lost:
            self._book.gap(f"{count(lost)} lines are missing: they came too fast", entries[0].time if entries else None)
        if entries:
            self._book.forget_copies("docker", entries[0].time)
            self._book.forget_copies("event")
            self.last_time = max(self.last_time, entries[-1].time)
        self._book.add(entries, self._clock(), is_backlog=is_new)
        following = page.whole("next")
        self._after = following if following is not None else _last_id(lines, self._after or 0)

    async def _page(self, **params: int) -> Facts:
        return Facts(await self._client.get("/admin/logs", params=params))

    def take(self, events: Sequence[Facts]) -> None:
        """Events that are not in the book yet, but none that the log tells too; a thousand ids are remembered."""
        has_log = self._after is not None and not self.fault
        fresh = []
        for event in events:
            name = event.text("id") or f"{event.num('time')} {event.text('text')}"
            if name not in self._events:
                self._events[name] = None
                if not (has_log and event.text("kind") in LOGGED):
                    fresh.append(_event(event))
        for name in list(self._events)[:-1000]:
            del self._events[name]
        if fresh:
            self._book.add(fresh, self._clock(), is_backlog=True)


def _entry(line: Facts) -> Entry:
    source, level = line.text("source", "server"), line.text("level", "info")
    return Entry(line.num("time") or 0.0, level, source, line.text("text"))


def _event(event: Facts) -> Entry:
    words = f"{event.text('kind')}: {event.text('text')}"
    kind: Kind = "copy" if event.text("kind") in LOGGED else "line"
    return Entry(event.num("time") or 0.0, event.text("level", "info"), "event", words, kind)


def _last_id(lines: Sequence[Facts], otherwise: int) -> int:
    return (lines[-1].whole("id") if lines else None) or otherwise
