"""The dashboard in a window: sizes, focus, the cursor of the requests, a lost link, only changed cells painted."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from rich.text import Text

from tests.tui.fake import Fake
from tests.tui.frames import frame, see, until
from tui import local
from tui.containers import Engine, Look
from tui.looks import Looks
from tui.widgets.painting import changed_regions
from tui.widgets.requests import RequestTable

STATES = ("stopped", "loading", "ready", "draining", "swapping", "degraded", "crashed")


def table(pilot: Any) -> RequestTable:
    return pilot.app.screen.query_one(RequestTable)


def count_calls(monkeypatch: Any, thing: Any, name: str, note: Callable[..., Any]) -> None:
    """Note each call of a method, and let it happen."""
    real = getattr(thing, name)

    def counted(*words: Any, **more: Any) -> Any:
        note(*words)
        return real(*words, **more)

    monkeypatch.setattr(thing, name, counted)


def request(name: str, **facts: Any) -> dict[str, Any]:
    return {"id": name, "lane": "interactive", "model": "m", "state": "running", "phase": "decode", "n_prompt": 10,
            "n_prompt_done": 10, "n_generated": 5, "max_tokens": 10, "running_ms": 1000, "queue_ms": 0, "ttft_ms": 5,
            "tok_s": 9.5, "eta_ms": 100, **facts}  # fmt: skip


async def test_all_seven_panels_at_120_columns(window) -> None:
    async with window(120, 36) as pilot:
        text = await see(pilot, "quick-verify", "10a4")
        titles = [line.split("+- ")[1:] for line in text.splitlines() if line.startswith("+- ")]
        assert [part.split(" ")[0] for row in titles for part in row] == [
            "Engine", "Speed", "Memory", "Host", "Batch", "Requests", "Events"]  # fmt: skip
        for words in ("decode   23.4 tok/s", "p50 340 ms", "W weights  2.33 GiB", "node0 [", "WARN  request"):
            assert words in text
        heights = [panel.region.height for panel in pilot.app.screen.panels()]
        assert heights == [13, 8, 8, 8, 7, 7, 5], "requests take what the others leave"


async def test_80_columns_hold_the_same_facts_in_four_panels(window) -> None:
    async with window(80, 24) as pilot:
        text = await see(pilot, "[READY] rev 14", "10a4")
        for words in ("ctx 8192x4", "decode 23.4 tok/s", "slots [###-] 3/4", "K 2.39 31% used", "node1 4%", "+2 more"):
            assert words in text
        assert "+- Host" not in text and "+- Speed" not in text


async def test_one_panel_at_60x16_and_tab_walks_through_all(window) -> None:
    async with window(60, 16) as pilot:
        await see(pilot, "+- Requests")
        seen = []
        for _ in range(7):
            seen.append(next(line for line in frame(pilot.app).splitlines() if line.startswith("+- ")).split()[1])
            await pilot.press("tab")
            await pilot.pause()
        assert seen == ["Requests", "Engine", "Speed", "Memory", "Host", "Batch", "Events"]
        await see(pilot, "+- Requests")


async def test_focus_begins_at_the_requests_and_goes_by_importance(window) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "10a4")
        seen = []
        for _ in range(8):
            seen.append(pilot.app.focused.id)
            await pilot.press("tab")
        assert seen == ["requests", "engine", "speed", "memory", "host", "batch", "events", "requests"]
        await pilot.press("shift+tab", "shift+tab")
        assert pilot.app.focused.id == "events"


async def test_enter_opens_the_screen_a_panel_belongs_to(window) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "10a4")
        for n_tabs, mode in ((0, "queue"), (1, "profiles"), (2, "memory"), (3, "logs")):
            await pilot.press(*["tab"] * n_tabs, "enter")
            await until(pilot, lambda mode=mode: pilot.app.current_mode == mode)
            await pilot.press("1")
            await see(pilot, "10a4")


async def test_zoom_shows_one_panel_whole_and_goes_back(window) -> None:
    async with window(80, 24) as pilot:
        await see(pilot, "10a4")
        await pilot.press("tab", "z")
        await see(pilot, "| threads  16")
        await pilot.press("z")
        await see(pilot, "+- Memory", "10a4")


async def test_the_cursor_stays_on_its_request(window, fake: Fake) -> None:
    fake.state["running"] = [request(f"r-{n}", running_ms=9000 - n) for n in range(6)]
    fake.state["waiting"], fake.state["n_waiting"] = [], 0
    async with window(120, 36) as pilot:
        await see(pilot, "> r-0")
        await pilot.press("j", "j", "j")
        await see(pilot, "> r-3")
        fake.state["running"] = [request("new", running_ms=99000), *fake.state["running"][2:]]
        await see(pilot, "> r-3", "  new")
        assert "r-0" not in frame(pilot.app)
        fake.state["running"] = [row for row in fake.state["running"] if row["id"] != "r-3"]
        await see(pilot, "> r-4")
        fake.state["running"] = []
        await see(pilot, "no requests")
        fake.state["running"] = [request("after")]
        await see(pilot, "> after")


async def test_more_requests_than_rows_scroll_with_the_cursor(window, fake: Fake) -> None:
    fake.state["running"] = [request(f"r-{n:02}", running_ms=9000 - n) for n in range(40)]
    fake.state["n_waiting"] = 120
    async with window(80, 24) as pilot:
        # Six lines inside: the header, four requests and how many there are besides; 119 wait beyond the list.
        await see(pilot, "> r-00", f"+{41 - 4 + 119} more")
        await pilot.press("G")
        text = await see(pilot, "> 10a7", "+119 more", "37 above")
        assert "r-39" in text
        await pilot.press("g")
        await see(pilot, "> r-00")


async def test_filter_and_order(window) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "10a4", "10a6", "10a7")
        await pilot.press("slash", *"lane:batch", "enter")
        text = await see(pilot, "filter: lane:batch (1)")
        assert "10a6" in text and "10a4" not in text
        await pilot.press("escape")
        await see(pilot, "10a4")
        await pilot.press("o", "o", "o")
        await see(pilot, "sort: lane", "> 10a6")
        assert [line.split()[0] for line in table(pilot).lines[2:4]] == ["10a4", "10a7"]
        assert table(pilot).copy_text() == "chatcmpl-10a6-0", "y copies the whole id"


async def test_a05_letters_of_a_filter_are_letters(window) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "10a4")
        await pilot.press("slash", *"1:?/qs")
        await see(pilot, "1:?/qs")
        assert pilot.app.current_mode == "dash"
        await pilot.press("f3")
        await until(pilot, lambda: pilot.app.current_mode == "queue")


async def test_a16_states_differ_by_their_words_without_colours(window, fake: Fake) -> None:
    words = set()
    async with window(80, 24, looks=Looks(colours="mono")) as pilot:
        await see(pilot, "10a4")
        for state in STATES:
            fake.state.update(state=state, reason="a reason" if state == "degraded" else None)
            fake.state["swap"] = {"id": "1", "n": 4, "of": 5, "stage": "warm"} if state == "swapping" else None
            text = await see(pilot, f"[{state.upper()}")
            words.add(text[text.index(f"[{state.upper()}") :].split("]")[0])
        await fake.stop()
        await see(pilot, "[NO LINK]")
    assert len(words) == len(STATES)


async def test_without_a_link_the_values_are_old_and_the_panel_says_what_to_do(window, fake: Fake) -> None:
    async with window(80, 24) as pilot:
        await see(pilot, "10a4")
        await fake.stop()
        text = await see(pilot, "No link to the service", "last known [READY]", "STALE", "decode 23.4 tok/s?")
        text = await see(pilot, "What you can do", "r  try again now", timeout_s=8)
        assert "10a4" not in text
        await fake.start()
        await pilot.press("r")
        text = await see(pilot, "10a4", "link is back")
        assert "What you can do" not in text and "tok/s?" not in text
        assert pilot.app.focused.id == "requests"


async def test_without_a_link_docker_is_asked_why(window, fake: Fake, monkeypatch) -> None:
    class Docker:
        def look(self, with_lines: bool = True) -> Look:
            assert not with_lines
            return Look(Engine("colibri-1", "exited", exit_code=137, restarts=2))

    monkeypatch.setattr("tui.screens.dash.Containers", lambda _url: Docker())
    await fake.stop()
    async with window(80, 24) as pilot:
        await see(pilot, "docker says: colibri-1 exited, exit code 137 (killed, out of memory?),", "| restarts 2 ")


async def test_before_the_first_answer_nothing_is_invented(window, fake: Fake) -> None:
    await fake.stop()
    async with window(120, 36) as pilot:
        text = await see(pilot, "No link to the service", "What you can do")
        body = "\n".join(text.splitlines()[5:-1])
        assert "GiB" not in body.replace("- GiB", "") and "None" not in body


async def test_memory_of_this_machine_is_live_without_a_link(window, fake: Fake) -> None:
    fake.state["memory"]["machine"]["total"] = local.machine()["total"]
    async with window(120, 36) as pilot:
        await see(pilot, "10a4")
        await fake.stop()
        await see(pilot, "Memory (live, of this machine)")


async def test_batch_takes_its_place_only_when_there_is_one(window, fake: Fake) -> None:
    async with window(80, 24) as pilot:
        await see(pilot, "+- Events")
        fake.state["batch"] = {"jobs": 1}
        text = await see(pilot, "+- Batch", "too old to show")
        assert "+- Events" not in text


async def test_a_snapshot_lays_nothing_out_anew_and_paints_few_cells(window, fake: Fake, monkeypatch) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "10a4")
        layouts, painted = [], []
        count_calls(monkeypatch, pilot.app.screen, "_refresh_layout", lambda *_: layouts.append(1))
        count_calls(monkeypatch, table(pilot), "refresh", lambda *regions: painted.append(sum(r.area for r in regions)))

        async def news() -> int:
            """One snapshot with one token more; how often it laid the screen out."""
            before, state = len(layouts), copy.deepcopy(fake.state)
            state["seq"] += 1
            state["running"][0]["n_generated"] = 100 + state["seq"] % 100
            fake.state = state
            await until(pilot, lambda: pilot.app.snap.num("seq") == state["seq"])
            await pilot.pause()
            return len(layouts) - before

        calm = 0
        for _ in range(40):  # the first paint may still be under way
            calm = 0 if await news() else calm + 1
            if calm == 3:
                break
        del painted[:]
        assert [await news() for _ in range(6)] == [0] * 6
        assert painted and max(painted) <= 20, "one number of one row and its bar"


@pytest.mark.parametrize("old,new,spans", [
    ("abcdef", "abXdef", [(2, 1)]), ("abcdef", "abcdef", []), ("abc", "abcde", [(3, 2)]), ("abcde", "abc", [(3, 2)]),
    ("日本語x", "日本文x", [(4, 2)]), ("日本x", "ab本x", [(0, 5)]), ("", "a", [(0, 1)]),
])  # fmt: skip
def test_the_smallest_stretch_that_changed(old: str, new: str, spans: list[tuple[int, int]]) -> None:
    found = changed_regions([Text(old)], [Text(new)], 10)
    assert [(region.x, region.width) for region in found] == spans


def test_a_changed_style_is_a_change_and_so_are_lines_that_come_or_go() -> None:
    bold = Text("abc")
    bold.stylize("bold", 1, 2)
    assert [(r.x, r.width) for r in changed_regions([Text("abc")], [bold], 10)] == [(1, 1)]
    assert [(r.x, r.y, r.width) for r in changed_regions([Text("a")], [Text("a"), Text("b")], 10)] == [(0, 1, 10)]
    assert [(r.x, r.y, r.width) for r in changed_regions([Text("a"), Text("b")], [Text("a")], 10)] == [(0, 1, 10)]
