"""The Logs screen in a window: following, looking back, finding, choosing, writing; floods; no link."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.tui.fake import Fake
from tests.tui.frames import frame, see, until
from tests.tui.test_logfeed import Ring
from tui.containers import Engine, Look
from tui.logbook import KEPT, Entry
from tui.looks import Looks
from tui.screens.logs import LogsScreen
from tui.widgets.logview import LogView


class Nothing:
    """In place of docker: what a test says, else nothing."""

    def __init__(self) -> None:
        self.said = Look(fault="docker: /var/run/docker.sock is not here; start this program on the host")
        self.wanted: list[bool] = []

    def look(self, with_lines: bool = True, since: float = 0.0) -> Look:
        self.wanted.append(with_lines)
        return self.said


class Silent:
    """In place of this machine's kernel, whose lines are nobody's in a test."""

    fault = ""

    def read(self) -> list[Entry]:
        return []


@pytest.fixture
def ring(fake: Fake) -> Ring:
    made = Ring(fake)
    made.began = 1790000000.0
    made.count = 60
    return made


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Nothing:
    made = Nothing()
    monkeypatch.setattr("tui.screens.logs.Containers", lambda _url: made)
    monkeypatch.setattr("tui.screens.logs.DOCKER_EVERY_S", 0.0)
    monkeypatch.setattr("tui.screens.logs.KernelLog", Silent)
    return made


async def opened(pilot: Any, last: str = "one 60") -> LogView:
    await see(pilot, "[READY]")
    await pilot.press("7")
    await see(pilot, last, "FOLLOW")
    screen = pilot.app.screen
    assert isinstance(screen, LogsScreen)
    return screen.view


def top(pilot: Any) -> str:
    """The first line of the log that is on the screen."""
    return re.findall(r"one \d+", frame(pilot.app))[0]


async def test_it_follows_until_somebody_looks_back_and_says_so(window, ring: Ring, docker: Nothing) -> None:
    async with window(80, 24) as pilot:
        await opened(pilot)
        ring.count = 70
        await see(pilot, "one 70", "FOLLOW")
        await pilot.press("up")
        await see(pilot, "follow off (f, end)")
        first = top(pilot)
        ring.count = 90
        await until(pilot, lambda: len(pilot.app.screen.book.entries) >= 90)
        assert top(pilot) == first, "what is read stands still"
        assert "one 90" not in frame(pilot.app)
        await pilot.press("end")
        await see(pilot, "one 90", "FOLLOW")
        await pilot.press("f")
        await see(pilot, "follow off")
        await pilot.press("f")
        await see(pilot, "FOLLOW")


async def test_pages_first_and_last(window, ring: Ring, docker: Nothing) -> None:
    async with window(80, 24) as pilot:
        view = await opened(pilot)
        await pilot.press("g")
        await see(pilot, "one 1 ", "follow off")
        assert top(pilot) == "one 1"
        await pilot.press("space")
        await see(pilot, f"one {view.room + 1} ")
        await pilot.press("b")
        await see(pilot, "one 1 ")
        await pilot.press("G")
        await see(pilot, "one 60", "FOLLOW")


async def test_finding_counts_and_goes_round(window, ring: Ring, docker: Nothing) -> None:
    async with window(120, 36) as pilot:
        view = await opened(pilot)
        await pilot.press("slash", *"one 5", "enter")
        await see(pilot, "find 'one 5' 11/11")  # 5 and 50 to 59
        assert view.here is not None and view.here.text == "one 59"
        await pilot.press("n")
        await see(pilot, "find 'one 5' 1/11")
        await pilot.press("N")
        await see(pilot, "find 'one 5' 11/11")
        assert re.search(r"\|>\S+ INFO  engine      one 59", frame(pilot.app))
        await pilot.press("escape")
        await until(pilot, lambda: "find" not in frame(pilot.app).splitlines()[2])


async def test_level_source_time_and_wrap(window, ring: Ring, docker: Nothing, fake: Fake) -> None:
    fake.state["events"] = [{"id": "b-1", "time": 1790000100.0, "kind": "host", "level": "error", "text": "long " * 40}]
    async with window(80, 24) as pilot:
        await opened(pilot)
        await see(pilot, "E evt  host: long", "[x]eng [x]evt")
        await pilot.press("W")
        await until(pilot, lambda: frame(pilot.app).count("long") == 40)
        await pilot.press("W")
        await until(pilot, lambda: frame(pilot.app).count("long") < 20)
        await pilot.press("l", "l")
        text = await see(pilot, ">=ERROR", "E evt")
        assert "one 60" not in text
        await pilot.press("l", "c")
        text = await see(pilot, ">=DEBUG", "Logs  engine", "[x]eng [ ]evt", "one 60")
        assert "host: long" not in text
        await pilot.press("c", "c")
        await see(pilot, "Logs  all")
        await pilot.press("t")
        await see(pilot, "2026-")
        await pilot.press("t")
        await until(pilot, lambda: "| I eng  one 60" in frame(pilot.app))


async def test_a_mark_copying_and_writing(window, ring: Ring, docker: Nothing) -> None:
    async with window(80, 24) as pilot:
        await opened(pilot)
        await pilot.press("m")
        await see(pilot, "-- mark ")
        await pilot.press("up", "y")
        await see(pilot, "follow off")
        assert pilot.app.clipboard.endswith("INFO  engine      one 60")
        await pilot.press("w")
        await see(pilot, "lines written to")
        (path,) = (Path(path) for path in Path.home().parent.glob("xdg_state_home/colibri/log-*"))
        lines = path.read_text().splitlines()
        assert lines[1].endswith("INFO  engine      one 1") and lines[-1].startswith("-- mark ")
        assert len(lines) == 1 + 60 + 1, "with the event that no log line tells, and the mark"


async def test_without_a_link_it_keeps_what_it_has_and_says_what_it_cannot_read(
    window, ring: Ring, docker: Nothing, fake: Fake
) -> None:
    async with window(80, 24) as pilot:
        await opened(pilot)
        await fake.stop()
        await see(pilot, "[NO LINK]", "one 60", "! docker: /var/run/docker.sock is not here")
        engine = Engine("colibri-1", "exited", exit_code=137)
        lines = (Entry(1790000200.0, "error", "docker", "the last words", "copy"),)
        docker.said = Look(engine, lines)
        await see(pilot, "E dkr  the last words")
        assert docker.wanted[-1] is True, "the container's lines are read when the service cannot tell them"
        docker.said = Look(engine)
        ring.began, ring.count = 1790000138.9, 61  # the line that only docker had, told by the service now
        await fake.start()
        await pilot.press("r")
        await see(pilot, "one 61")
        await until(pilot, lambda: "the last words" not in frame(pilot.app))
        await until(pilot, lambda: docker.wanted[-1] is False)


async def test_before_the_first_line_it_says_why_there_is_none(window, fake: Fake, docker: Nothing) -> None:
    fake.state["events"] = []
    async with window(80, 24) as pilot:
        await see(pilot, "[READY]")
        await pilot.press("7")
        await see(pilot, "no lines of this level", "! service: it has no log to read", "! docker:")


async def test_a20_a_flood_costs_two_questions_a_look_and_no_more_than_a_window_of_lines(
    window, ring: Ring, docker: Nothing
) -> None:
    """100,000 lines in jumps of 5,000 while it follows: counted, not timed."""
    async with window(80, 24) as pilot:
        view = await opened(pilot)
        drawn: list[int] = []
        real = view.render_line
        view.render_line = lambda y: (drawn.append(y), real(y))[1]  # type: ignore[method-assign]
        for _ in range(20):
            before, n_drawn = ring.asked, len(drawn)
            ring.count += 5000
            await until(pilot, lambda: re.search(rf"one {ring.count}\b", frame(pilot.app)))
            looks = ring.asked - before
            assert len(view.entries) <= KEPT
            # Each look may draw the window once, the frame() of this test once more.
            assert len(drawn) - n_drawn <= 24 * (looks + 400)
        assert len(pilot.app.screen.book.entries) <= KEPT
        assert "lines are missing" in "\n".join(entry.text for entry in view.entries)
        await pilot.press("up")
        await see(pilot, "follow off")


async def test_one_line_of_a_megabyte_is_a_line(window, fake: Fake, docker: Nothing) -> None:
    line = {"id": 1, "time": 1790000000.0, "level": "info", "source": "engine", "text": "<" + "y" * (1 << 20)}
    fake.answers["GET", "/admin/logs"] = {"boot": "b", "lines": [line], "next": 1, "dropped": 0}
    async with window(80, 24) as pilot:
        await see(pilot, "[READY]")
        await pilot.press("7")
        await see(pilot, "eng  <yyy")
        assert max(len(entry.text) for entry in pilot.app.screen.book.entries) <= 2000
        await pilot.press("W")
        await see(pilot, "yyyyy")


async def test_markup_and_controls_in_lines_stay_letters(window, fake: Fake, docker: Nothing) -> None:
    text = "[red]no[/] \x1b[31m \u202e日本 [link='x']"
    line = {"id": 1, "time": 1790000000.0, "level": "info", "source": "[b]x", "text": text}
    fake.answers["GET", "/admin/logs"] = {"boot": "b", "lines": [line], "next": 1, "dropped": 0}
    async with window(120, 36, looks=Looks()) as pilot:
        await see(pilot, "[READY]")
        await pilot.press("7")
        shown = await see(pilot, "[red]no[/] ?[31m ?日本 [link='x']")
        assert "\x1b" not in shown


async def test_the_command_line_chooses_source_and_level(window, ring: Ring, docker: Nothing) -> None:
    async with window(80, 24) as pilot:
        view = await opened(pilot)
        screen = pilot.app.screen
        assert screen.command("logs", ["engine", "WARN"])
        await see(pilot, "Logs  engine", ">=WARN")
        assert screen.command("logs", ["all", "debug"])
        await see(pilot, "Logs  all", ">=DEBUG")
        assert screen.command("logs", ["nonsense"])
        await see(pilot, "'nonsense' is no source and no level")
        assert not screen.command("other", [])
        assert view.level == "debug"


async def test_it_asks_only_while_it_is_seen(window, ring: Ring, docker: Nothing) -> None:
    async with window(80, 24) as pilot:
        await opened(pilot)
        await pilot.press("1")
        await see(pilot, "10a4")
        asked = ring.asked
        for _ in range(5):
            snap = pilot.app.snap
            await until(pilot, lambda snap=snap: pilot.app.snap is not snap)
        assert ring.asked - asked <= 1, "one question may have been under way"
        await pilot.press("7")
        await until(pilot, lambda: ring.asked > asked + 1)
