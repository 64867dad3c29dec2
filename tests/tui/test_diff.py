"""The difference of two texts, held against difflib's own facts, and the screen that shows it. Scripted service."""

import difflib
import random

import pytest

from tests.tui.fake import Fake
from tests.tui.frames import frame, see, until
from tests.tui.shelf import Shelf
from tui.panels.diff import counts, rows, split, starts, unified
from tui.screens.diff import DiffScreen

OLD = "name: quick-verify\nctx_size: 2048\nthreads: 16\nsampling:\n  temp: 0.0\nqueue:\n  max_queue: 64\n"
NEW = "name: long-doc\nctx_size: 16384\nubatch_size: 128\nthreads: 32\nsampling:\n  temp: 0.0\n"


@pytest.fixture
def shelf(fake: Fake) -> Shelf:
    return Shelf(fake)


def pairs(count: int) -> list[tuple[str, str]]:
    """Texts of few distinct lines, so that the same line stands in many places."""
    draw = random.Random(7)
    lines = ["a: 1", "a: 2", "b: 1", "  c: x", "  c: y", "# note", "", "list"]
    found = []
    for _ in range(count):
        old, new = ([draw.choice(lines) for _ in range(draw.randrange(12))] for _ in range(2))
        found.append(("\n".join(old), "\n".join(new)))
    return found


def test_every_line_of_both_texts_is_there_once_and_in_order() -> None:
    for old, new in [*pairs(300), (OLD, NEW)]:
        found = rows(old, new)
        assert [row.left for row in found if row.left is not None] == old.splitlines()
        assert [row.right for row in found if row.right is not None] == new.splitlines()
        assert [row.left_no for row in found if row.left_no] == list(range(1, len(old.splitlines()) + 1))


def test_the_counts_are_those_of_a_unified_diff() -> None:
    for old, new in [*pairs(300), (OLD, NEW)]:
        told = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0))
        body = [line for line in told if not line.startswith(("---", "+++", "@@"))]
        # The first two lines are the headers; a changed line that begins with -- or ++ does not occur in these texts.
        plus, minus = (sum(line.startswith(sign) for line in body) for sign in "+-")
        assert counts(rows(old, new)) == (plus, minus), (old, new)


def test_a_changed_key_stands_beside_itself() -> None:
    beside = {(row.left, row.right) for row in rows(OLD, NEW) if row.is_change}
    assert ("ctx_size: 2048", "ctx_size: 16384") in beside
    assert ("threads: 16", "threads: 32") in beside
    assert (None, "ubatch_size: 128") in beside
    assert ("  max_queue: 64", None) in beside


def test_both_sides_are_of_one_length_and_carry_their_signs() -> None:
    left, right = split(rows(OLD, NEW))
    assert len(left) == len(right)
    assert {line.sign for line in left} == {" ", "-"}
    assert {line.sign for line in right} == {" ", "+"}
    assert all(line.change is None for line in left if line.sign == " " and line.no)


def test_one_column_tells_the_old_value_before_the_new_one() -> None:
    told = [f"{line.sign}{line.text}" for line in unified(rows(OLD, NEW))]
    at = told.index("-ctx_size: 2048")
    assert told[at + 1] == "+ctx_size: 16384"


def test_only_changes_leaves_out_what_is_equal_and_the_jumps_still_hit_each_stretch() -> None:
    found = rows(OLD, NEW)
    every, some = unified(found), unified(found, only_changes=True)
    assert all(line.change is not None for line in some)
    assert len(starts(every)) == len(starts(some)) == len({line.change for line in some})
    assert [every[i].text for i in starts(every)] == [some[i].text for i in starts(some)]


def test_equal_texts_differ_nowhere() -> None:
    found = rows(OLD, OLD)
    assert counts(found) == (0, 0)
    assert starts(unified(found)) == []
    assert unified(found, only_changes=True) == []


async def test_the_screen_compares_what_runs_with_what_would_and_tells_the_effects(window, shelf: Shelf) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        pilot.app.action_go("profiles")
        await see(pilot, "batch-tag")
        pilot.app.screen.table.stand_on("long-doc")
        await see(pilot, ">  long-doc")
        await pilot.press("d")
        text = await see(pilot, "Running now: quick-verify rev 14", "To apply: long-doc rev 6", "+10 -5", "new threads")
        asked = [asked.query for asked in shelf.fake.asked if asked.path == "/admin/profiles/quick-verify"]
        assert asked == [{"rev": "14"}], "the revision in force, whatever was saved since"
        old = next(line for line in text.splitlines() if "ctx_size: 8192" in line)
        assert "ctx_size: 32768" in old, "a changed key stands beside itself"
        await see(pilot, "3 running will be drained", "roll back to quick-verify")
        await pilot.press("u", "n")
        await see(pilot, "unified", ">+ # one long document at a time")
        for width, height in ((100, 30), (80, 24), (60, 16), (40, 10), (120, 36)):
            await pilot.resize_terminal(width, height)
            await until(pilot, lambda w=width: {len(line) for line in frame(pilot.app).splitlines()} == {w})
            assert len(frame(pilot.app).splitlines()) == height
            assert pilot.app.screen.max_scroll_y == 0
        await pilot.press("ctrl+r")
        await see(pilot, "Review: swap quick-verify -> long-doc rev 6")
        await pilot.press("escape")
        await until(pilot, lambda: not pilot.app.screen.is_modal)
        await pilot.press("e")
        await see(pilot, "Edit  long-doc.yaml", "drain_timeout")
        for width, height in ((100, 30), (80, 24), (60, 16), (40, 10), (120, 36)):
            await pilot.resize_terminal(width, height)
            await until(pilot, lambda w=width: {len(line) for line in frame(pilot.app).splitlines()} == {w})
            assert len(frame(pilot.app).splitlines()) == height
            assert pilot.app.screen.max_scroll_y == 0
        await see(pilot, "drain_timeout", "nothing is wrong")


async def test_two_stored_profiles_by_name(window, shelf: Shelf) -> None:
    async with window(80, 24) as pilot:
        await see(pilot, "[READY]")
        pilot.app.tell_screen("profiles", "diff", ["batch-tag", "fallback"])
        await see(pilot, "batch-tag rev 0 -> fallback rev 0", "- name: batch-tag", "+ name: fallback")
        await see(pilot, "What a swap to fallback changes")
        await pilot.press("a")
        await until(pilot, lambda: "  ctx_size: 2048" not in frame(pilot.app))


async def test_a_change_of_looks_passes_by_a_screen_that_was_closed(window, shelf: Shelf) -> None:
    async with window(100, 30) as pilot:
        await see(pilot, "[READY]")
        pilot.app.push_screen(DiffScreen("long-doc"))
        await see(pilot, "What this changes")
        closed = pilot.app.screen
        pilot.app.pop_screen()
        pilot.app.use_looks(ascii=False)
        await until(pilot, lambda: closed not in pilot.app.live)
        pilot.app.use_looks(ascii=True)
