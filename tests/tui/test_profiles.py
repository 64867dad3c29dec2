"""The list of profiles: rows, details and reasons, filter, keys, sizes; over a scripted service with a real shelf."""

import pytest

from tests.tui.fake import Fake
from tests.tui.frames import frame, see, tap, until
from tests.tui.shelf import TEXTS, Shelf, etag
from tui.panels.profiles import columns, matches, row
from tui.snap import Facts
from tui.units import size


@pytest.fixture
def shelf(fake: Fake) -> Shelf:
    return Shelf(fake)


async def opened(pilot) -> None:
    await see(pilot, "[READY]")
    await pilot.press("2")
    await see(pilot, "long-doc", "batch-tag")


def line_of(pilot, words: str) -> str:
    return next(line for line in frame(pilot.app).splitlines() if words in line)


async def test_rows_details_reasons_the_whole_plan_and_every_file_validated(window, shelf: Shelf) -> None:
    async with window(120, 36) as pilot:
        await opened(pilot)
        assert ">* quick-verify" in frame(pilot.app)
        assert "ACTIVE" in line_of(pilot, "quick-verify  ")
        assert " NO " in line_of(pilot, "huge-test")
        assert " OK " in line_of(pilot, "batch-tag")
        assert "2 errors" in line_of(pilot, "draft-x")
        assert "(file has errors)" in line_of(pilot, "draft-x")
        assert "safe" in line_of(pilot, "fallback  ")
        # The details are the planner's numbers for the row under the cursor.
        await pilot.press("j")
        plan = shelf.plan("long-doc", shelf.texts["long-doc"])
        await see(pilot, "4/4 pass", size(plan["kv_bytes"]), size(plan["spare_bytes"]), "- rev 6")
        assert "threads within physical cores" in frame(pilot.app)
        await pilot.press("m")
        await see(pilot, "Plan of long-doc", "no service for about 11 s", "new ctx_size", "[ Close ]")
        await pilot.press("pagedown")
        await see(pilot, "SETTING", "profile long-doc", "[ Close ]")
        await pilot.press("escape", "j", "j", "j")
        await see(pilot, "fail", "missing")
        await pilot.press("v")
        await see(pilot, "Validated 6 files, 1 with errors", "line 2: ctx_size: 99999 is above")
        assert len(shelf.fake.bodies("POST", "/admin/profiles/validate")) == 6


async def test_a_cursor_that_runs_down_the_list_asks_the_planner_once(window, shelf: Shelf) -> None:
    async with window(120, 36) as pilot:
        await opened(pilot)
        await until(pilot, lambda: shelf.n_plans == 1)
        await tap(pilot, "j", "j", "j", "j")
        asked = shelf.fake.bodies
        await until(pilot, lambda: len(asked("POST", "/admin/plan")) > 1)
        await see(pilot, "huge-test ----", "memory within the budget", "fail")
        assert asked("POST", "/admin/plan") == [{"name": "quick-verify"}, {"name": "huge-test"}]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("long", {"long-doc"}),
        ("fit:no", {"huge-test"}),
        ("state:err", {"draft-x"}),
        ("ctx:2048", {"batch-tag", "fallback"}),
        ("rows", {"batch-tag"}),
        ("!q8_0 !fit:ok", {"draft-x"}),
        ("nothing-has-this", set()),
    ],
)
async def test_the_filter_keeps_what_matches_every_term(shelf: Shelf, words: str, left: set[str]) -> None:
    kept = {p["name"] for p in shelf.listed()["profiles"] if matches(Facts(p), words)}
    assert kept == left


async def test_the_filter_and_a_new_list_leave_the_cursor_on_its_profile(window, shelf: Shelf, fake: Fake) -> None:
    async with window(120, 36) as pilot:
        await opened(pilot)
        await pilot.press("slash")
        await tap(pilot, *"fit:no")
        await see(pilot, "1 of 6 files")
        assert "batch-tag" not in frame(pilot.app)
        await pilot.press("escape")
        await see(pilot, "batch-tag", "6 files")
        pilot.app.screen.table.stand_on("long-doc")
        await see(pilot, ">  long-doc")
        shelf.texts = {"aaa": "name: aaa\nctx_size: 512\n", **shelf.texts}
        shelf.revs["aaa"] = 1
        pilot.app.screen.refresh_list()
        await see(pilot, "aaa", ">  long-doc")
        # A list that cannot be had leaves the old one.
        fake.answers["GET", "/admin/profiles"] = lambda _: (500, {"error": {"message": "disk gone", "code": "io"}})
        pilot.app.screen.refresh_list()
        await until(pilot, lambda: pilot.app.screen._error == "disk gone")
        assert ">  long-doc" in frame(pilot.app)


async def test_a_list_that_was_never_had_counts_no_files(window, fake: Fake) -> None:
    fake.answers["GET", "/admin/profiles"] = lambda _: (500, {"error": {"message": "disk gone", "code": "io"}})
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        await tap(pilot, "2")
        assert "- files" in await see(pilot, "disk gone")


async def test_delete_asks_for_the_name_and_never_takes_the_active_the_fallback_or_a_shipped_one(
    window, shelf: Shelf
) -> None:
    async with window(120, 36) as pilot:
        await opened(pilot)
        for name, why in (("quick-verify", "serves now"), ("fallback", "is the fallback"), ("batch-tag", "as shipped")):
            pilot.app.screen.table.stand_on(name)
            await until(pilot, lambda n=name: pilot.app.screen.table.current == n)
            await pilot.press("D")
            await see(pilot, why)
        pilot.app.screen.table.stand_on("long-doc")
        await until(pilot, lambda: pilot.app.screen.table.current == "long-doc")
        await pilot.press("D")
        await see(pilot, "Type long-doc", "( Delete )")
        await tap(pilot, *"long-do")
        await until(pilot, lambda: pilot.app.screen.query_one("#word").value == "long-do")
        await pilot.press("enter")
        assert "( Delete )" in frame(pilot.app)
        assert "long-doc" in shelf.texts
        await pilot.press("c", "enter", "enter")
        await until(pilot, lambda: "long-doc" not in shelf.texts)
        [asked] = [asked for asked in shelf.fake.asked if asked.method == "DELETE"]
        assert asked.headers["If-Match"] == f'"{etag(TEXTS["long-doc"])}"'
        await see(pilot, "long-doc was deleted")


async def test_a_clone_needs_a_free_name_and_is_saved_as_new(window, shelf: Shelf) -> None:
    shelf.offer("long-doc-2")
    async with window(120, 36) as pilot:
        await opened(pilot)
        await pilot.press("a")
        await see(pilot, "New profile", "type a name")
        await tap(pilot, *"fallback")
        await see(pilot, "exists already", "( Edit it )")
        await pilot.press("X")
        await see(pilot, "no profile name")
        await pilot.press("backspace", "2")
        await see(pilot, "[ Edit it ]")
        await pilot.press("escape", "j", "c")
        await see(pilot, "Clone long-doc", "long-doc-2")
        await pilot.press("tab", "enter")
        await see(pilot, "name: long-doc-2", "drain_timeout", "nothing is wrong")
        assert "long-doc-2" not in shelf.texts
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "long-doc-2" in shelf.texts)
        assert shelf.texts["long-doc-2"] == TEXTS["long-doc"].replace("name: long-doc", "name: long-doc-2")
        asked = next(a for a in shelf.fake.asked if a.method == "PUT")
        assert asked.headers["If-None-Match"] == "*"


async def test_the_list_fits_every_window(window, shelf: Shelf) -> None:
    async with window(120, 36) as pilot:
        await opened(pilot)
        await pilot.press("j")
        await see(pilot, "4/4 pass")
        for width, height in ((100, 30), (80, 24), (60, 16), (160, 50)):
            await pilot.resize_terminal(width, height)
            size = (height, {width})
            await until(pilot, lambda s=size: (len(rows := frame(pilot.app).splitlines()), set(map(len, rows))) == s)
            await until(pilot, lambda: ">  long-doc" in frame(pilot.app) and "32768" in line_of(pilot, ">  long-doc"))
            assert frame(pilot.app).isascii()


def test_columns_fill_exactly_the_width_they_are_given() -> None:
    for width in range(58, 140):
        wanted = columns(width)
        assert sum(cells for _, _, cells in wanted) + len(wanted) == width + 1 or width < 62
        assert set(dict.fromkeys(key for key, _, _ in wanted)) <= set(row(Facts({})))
