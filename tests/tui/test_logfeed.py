"""Reading the log over HTTP: resumed by id, gaps named, floods and restarts of the service."""

from typing import Any

import pytest

from tests.tui.fake import Asked, Fake
from tui.client import Client
from tui.logbook import Logbook
from tui.logfeed import PAGE, Feed
from tui.snap import Facts


class Ring:
    """GET /admin/logs as the service answers it (appliance/loglines.py)."""

    def __init__(self, fake: Fake, kept: int = 5000) -> None:
        self.boot, self.began, self.count, self.kept = "one", 0.0, 0, kept
        self.asked = 0
        fake.answers["GET", "/admin/logs"] = self.answer

    def answer(self, asked: Asked) -> tuple[int, Any]:
        self.asked += 1
        limit, after = int(asked.query.get("limit", 500)), asked.query.get("after")
        oldest = max(self.count - self.kept, 0) + 1
        if after is None:
            ids, dropped = range(max(oldest, self.count - limit + 1), self.count + 1), 0
        else:
            start = int(after) if int(after) <= self.count else 0
            dropped = max(oldest - start - 1, 0)
            ids = range(max(start + 1, oldest), self.count + 1)[:limit]
        facts = {"level": "info", "source": "engine"}
        lines = [{"id": i, "time": self.began + i, "text": f"{self.boot} {i}", **facts} for i in ids]
        upto = self.count if after is None or len(lines) < limit else lines[-1]["id"]
        return 200, {"boot": self.boot, "lines": lines, "next": upto, "dropped": dropped}


class Reader:
    def __init__(self, fake: Fake) -> None:
        self.now = 0.0
        self.book = Logbook()
        self.feed = Feed(Client(fake.url), self.book, lambda: self.now)

    async def read(self, after_s: float = 1.0) -> list[str]:
        self.now += after_s
        await self.feed.read()
        return [entry.text for entry in self.book.entries]


@pytest.fixture
async def reader(fake: Fake) -> Any:
    made = Reader(fake)
    yield made
    await made.feed._client.close()


async def test_each_line_comes_once(fake: Fake, reader: Reader) -> None:
    ring = Ring(fake)
    ring.count = 3
    assert await reader.read() == ["one 1", "one 2", "one 3"]
    assert await reader.read() == ["one 1", "one 2", "one 3"]
    ring.count = 5
    assert (await reader.read())[3:] == ["one 4", "one 5"]


async def test_lines_that_left_the_ring_are_a_gap(fake: Fake, reader: Reader) -> None:
    ring = Ring(fake, kept=10)
    ring.count = 5
    await reader.read()
    ring.count = 40
    shown = await reader.read()
    assert shown[5] == "... 25 lines are missing: they came too fast"
    assert shown[6:] == [f"one {i}" for i in range(31, 41)]


async def test_a_flood_costs_two_questions_and_shows_the_newest(fake: Fake, reader: Reader) -> None:
    ring = Ring(fake)
    ring.count = 1
    await reader.read()
    ring.count, ring.asked = 100_001, 0
    shown = await reader.read()
    assert ring.asked == 2
    assert shown[-1] == "one 100001"
    assert len([text for text in shown if text.startswith("one")]) == 1 + 400, "two seconds' worth"
    assert any("lines are missing" in text for text in shown) and any("held back" in text for text in shown)
    ring.count += 2
    assert (await reader.read())[-2:] == ["one 100002", "one 100003"]


async def test_a_service_started_anew_is_read_from_its_own_beginning(fake: Fake, reader: Reader) -> None:
    ring = Ring(fake)
    ring.count = 7
    await reader.read()
    ring.boot, ring.began, ring.count = "two", 100.0, 9
    shown = await reader.read()
    assert "started anew" in shown[7]
    assert shown[8:] == [f"two {i}" for i in range(1, 10)]


async def test_no_answer_leaves_the_book_and_a_reason(fake: Fake, reader: Reader) -> None:
    ring = Ring(fake)
    ring.count = 2
    await reader.read()
    await fake.stop()
    assert len(await reader.read()) == 2
    assert "connection refused" in reader.feed.fault
    await fake.start()
    ring.count = 3
    assert len(await reader.read()) == 3 and reader.feed.fault == ""


@pytest.mark.parametrize(
    "page", [{}, {"lines": 3}, {"lines": [{}, {"id": "x", "text": 5}], "next": "y"}, {"lines": [None]}]
)
async def test_an_odd_page_is_no_end(fake: Fake, reader: Reader, page: dict[str, Any]) -> None:
    fake.answers["GET", "/admin/logs"] = page
    for _ in range(3):
        await reader.read()
    assert len(reader.book.entries) <= 8


async def test_an_older_service_has_no_log(fake: Fake, reader: Reader) -> None:
    await reader.read()
    assert reader.feed.fault == "it has no log to read, it is older"


async def test_events_that_the_log_tells_too_are_shown_once(fake: Fake, reader: Reader) -> None:
    def event(n: int, kind: str) -> Facts:
        return Facts({"id": f"b-{n}", "time": float(n), "kind": kind, "level": "info", "text": "words"})

    await reader.read()
    reader.feed.take([event(1, "swap"), event(2, "host")])
    assert [e.text for e in reader.book.entries] == ["swap: words", "host: words"], "no log: all of them"
    ring = Ring(fake)
    ring.count = 1
    assert await reader.read() == ["one 1", "host: words"]
    reader.feed.take([event(3, "worker"), event(4, "state")])
    assert [e.text for e in reader.book.entries] == ["one 1", "host: words", "state: words"]


def test_events_come_once_though_they_are_told_twice(fake: Fake) -> None:
    book = Logbook()
    feed = Feed(Client(fake.url), book, lambda: 0.0)
    events = [Facts({"id": "b-1", "time": 5.0, "kind": "swap", "level": "warning", "text": "rolled back"})]
    for _ in range(3):
        feed.take(events)
    assert [(e.source, e.level, e.text) for e in book.entries] == [("event", "warning", "swap: rolled back")]


def test_a_full_page_is_what_the_service_gives_at_most() -> None:
    assert PAGE == 500
