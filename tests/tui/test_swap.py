"""A swap as a person sees it: its stages, its end, its failures, from two terminals and after a restart. Scripted."""

from pathlib import Path

import pytest

from tests.tui.fake import Fake
from tests.tui.frames import frame, see, until
from tests.tui.shelf import Shelf
from tests.tui.swaps import STAGES, Swaps

FAILURES = [(stage, how) for stage in ("stop", "start", "warm", "check") for how in ("fault", "timeout")]


@pytest.fixture
def shelf(fake: Fake) -> Shelf:
    return Shelf(fake)


async def begin(pilot, name: str = "long-doc") -> None:
    await see(pilot, "[READY]")
    pilot.app.start_swap(name)
    await see(pilot, "Swap now")
    await pilot.press("tab", "enter")
    await see(pilot, "Swap 0042")


async def test_a07_a_happy_swap_shows_every_stage_in_order_and_ends_ready(window, shelf: Shelf, fake: Fake) -> None:
    swaps = Swaps(hold_at="drain").play(fake)
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        pilot.app.start_swap("long-doc")
        await see(pilot, "Swap now")
        await pilot.press("tab", "enter", "enter")
        for n, name in enumerate(STAGES[1:], 1):
            swaps.hold_at = name
            text = await see(pilot, f"{n} of 5  {name}", "[DRAINING]" if n == 1 else f"[SWAPPING {n}/5]")
            signs = next(line for line in text.splitlines() if ">>" in line and "|" in line).split()
            assert [sign for sign in signs if sign in ("ok", ">>", "-")] == ["ok"] * (n - 1) + [">>"] + ["-"] * (6 - n)
        swaps.hold_at = ""
        text = await see(pilot, "[READY]", "took the held requests", "18.2 s", "0.6 s", "1.9 s", "6.9 s", "0.7 s")
        assert [post["body"] for post in swaps.posts] == [{"to": "long-doc", "rev": 6, "note": ""}]
        assert swaps.posts[0]["key"]
        assert swaps.posts[0]["by"] == "ops"
        await until(pilot, lambda: pilot.app.snap.profile == "long-doc")


async def test_a09_a_failure_names_stage_reason_and_requests_and_the_report_can_be_copied(
    window, shelf: Shelf, fake: Fake, tmp_path: Path
) -> None:
    swaps = Swaps().play(fake)
    async with window(80, 24) as pilot:
        await see(pilot, "[READY]")
        for number, (stage, how) in enumerate(FAILURES, 42):
            swaps.fails, swaps.how = stage, how
            pilot.app.start_swap("long-doc")
            await see(pilot, "Swap now")
            await pilot.press("tab", "enter", "enter")  # one enter too many closes no report
            await see(pilot, f"Swap 00{number} FAILED, rolled back", "[READY]")
            text = "\n".join(pilot.app.screen.query_one("#swap").lines)  # a toast may lie over the screen
            assert f"{stage} failed: " in text
            assert "ROLLBACK" in text
            assert "3 kept, 0 lost" in text
            assert "FAIL" in text
            assert ("longer than its limit" in text) == (how == "timeout")
            assert "quick-verify rev 0 was started again and is READY" in text
            await pilot.press("y")
            await until(pilot, lambda n=number: f"Swap 00{n} FAILED" in pilot.app.clipboard)
            copied = pilot.app.clipboard
            assert f"{stage}_{'failed' if how == 'fault' else how}" in copied
            [file] = list(tmp_path.rglob(f"swap-00{number}*"))
            assert file.read_text() == copied
        await until(pilot, lambda: pilot.app.screen.is_old_enough)
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.current_mode != "swap")


async def test_a10_a_failed_rollback_ends_in_the_fallback_and_says_degraded(window, shelf: Shelf, fake: Fake) -> None:
    Swaps(fails="start", rescue="fallback").play(fake)
    async with window(120, 36) as pilot:
        await begin(pilot)
        await see(pilot, "[DEGRADED]", "FALLBACK", "'fallback' serves now", "left with exit code 137", timeout_s=20)
        assert pilot.app.snap.profile == "fallback"


async def test_a10_when_the_fallback_fails_too_the_last_lines_are_shown_and_s_starts_again(
    window, shelf: Shelf, fake: Fake
) -> None:
    swaps = Swaps(fails="start", rescue="crashed").play(fake)
    async with window(120, 36) as pilot:
        await begin(pilot)
        last = [f"line {n}" for n in range(1, 5)]
        await see(pilot, "[CRASHED]", "no engine runs", *last, "got signal 15", timeout_s=20)
        swaps.fails, swaps.rescue = "", "ok"
        await pilot.press("S")
        await see(pilot, "Swap now", "-> quick-verify")
        await pilot.press("tab", "enter")
        await see(pilot, "Swap 0043", "took the held requests", timeout_s=20)
        await see(pilot, "[READY]")


async def test_an_abort_asks_with_its_cost_free_before_stop_and_a_rollback_after(
    window, shelf: Shelf, fake: Fake
) -> None:
    swaps = Swaps(hold_at="drain").play(fake)
    async with window(80, 24) as pilot:
        await begin(pilot)
        await see(pilot, "1 of 5  drain")
        await pilot.press("A")
        await see(pilot, "Abort swap 0042", "costs nothing", "[ Abort ]")
        await pilot.press("enter")
        await until(pilot, lambda: not pilot.app.screen.is_modal)
        assert swaps.aborts == []
        await pilot.press("A")
        await see(pilot, "[ Abort ]")
        await pilot.press("tab", "enter")
        await see(pilot, "aborted before anything was stopped")
        swaps.hold_at = "warm"
        await until(pilot, lambda: pilot.app.screen.is_old_enough)
        await pilot.press("r")
        await see(pilot, "Swap now")
        await pilot.press("tab", "enter")
        await see(pilot, "Swap 0043", "4 of 5", "65%", "GiB")
        await pilot.press("A")
        await see(pilot, "stops the new engine and starts quick-verify", "[ Abort and roll back ]")
        await pilot.press("tab", "enter")
        await see(pilot, "aborted", "was started again and is READY")
        assert swaps.aborts == ["0042", "0043"]


async def test_no_abort_is_offered_on_the_way_back(window, shelf: Shelf, fake: Fake) -> None:
    swaps = Swaps(hold_at="warm").play(fake)
    async with window(80, 24) as pilot:
        await begin(pilot)
        await see(pilot, "4 of 5", "A Abort and roll back")
        assert swaps.current is not None
        swaps._begin_rescue(swaps.current, "quick-verify", 0, "rollback")
        swaps.step = lambda: None  # type: ignore[method-assign]
        await see(pilot, "ROLLBACK", "cannot be aborted")
        await until(pilot, lambda: "A Abort" not in frame(pilot.app))


async def test_a_second_operator_sees_the_same_swap_with_who_began_it(window, shelf: Shelf, fake: Fake) -> None:
    swaps = Swaps(hold_at="warm").play(fake)
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        swaps.begin({"to": "long-doc", "rev": 6, "note": ""}, {"X-Colibri-User": "eve"})
        fake.answers["GET", "/admin/swap/0042"] = lambda _: (200, swaps.find("0042"))
        fake.answers["POST", "/admin/swap/0042/abort"] = lambda _: swaps.abort("0042")
        await see(pilot, "swap 0042 quick-verify -> long-doc by eve", "s shows it")
        assert pilot.app.current_mode == "dash", "somebody else's swap takes no screen away"
        await pilot.press("s")
        await see(pilot, "Swap 0042", "by eve", "4 of 5  warm", "drain ok: 3 finished")
        await pilot.press("A")
        await see(pilot, "It was begun by eve")
        await pilot.press("escape", "b")
        await until(pilot, lambda: pilot.app.current_mode == "dash")
        assert swaps.posts[1:] == []


async def test_a_swap_that_runs_at_the_start_is_shown_with_the_servers_clock(window, shelf: Shelf, fake: Fake) -> None:
    swaps = Swaps(hold_at="start").play(fake)
    swaps.begin({"to": "long-doc", "rev": 6}, {"X-Colibri-User": "ops"})
    fake.answers["GET", "/admin/swap/0042"] = lambda _: (200, swaps.find("0042"))
    for _ in range(40):
        swaps.step()
    async with window(80, 24) as pilot:
        await see(pilot, "Swap 0042", "3 of 5  start")
        shown = next(line for line in frame(pilot.app).splitlines() if "elapsed" in line)
        minutes, seconds = shown.split("elapsed ")[1].split()[0].split(":")
        told = int(minutes) * 60 + int(seconds)
        assert abs(told - (swaps.now - swaps.current["started"])) <= 2


async def test_a_failure_just_before_the_start_is_shown_and_an_old_one_is_not(window, shelf: Shelf, fake: Fake) -> None:
    swaps = Swaps(fails="warm").play(fake)
    swaps.begin({"to": "long-doc", "rev": 6}, {})
    fake.answers["GET", "/admin/swap/0042"] = lambda _: (200, swaps.find("0042"))
    for _ in range(40):
        swaps.step()
    assert swaps.current is None
    async with window(80, 24) as pilot:
        await see(pilot, "FAILED, rolled back", "warm failed")
    swaps.now += 3600
    async with window(80, 24) as pilot:
        await see(pilot, "[READY]")
        assert pilot.app.current_mode == "dash", "the first snapshot decides, before it is drawn"


async def test_a_swap_that_somebody_began_in_the_meantime_is_shown_instead(window, shelf: Shelf, fake: Fake) -> None:
    swaps = Swaps(hold_at="warm").play(fake)
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        pilot.app.start_swap("long-doc")
        await see(pilot, "Swap now")
        swaps.begin({"to": "batch-tag", "rev": 0}, {"X-Colibri-User": "eve"})
        fake.answers["GET", "/admin/swap/0042"] = lambda _: (200, swaps.find("0042"))
        await pilot.press("tab", "enter")
        await see(pilot, "Swap 0042  quick-verify -> batch-tag", "by eve")
        assert len(swaps.posts) == 2, "one from eve, one from here that met 409"


async def test_a_lost_link_keeps_the_panel_and_the_swap_goes_on(window, shelf: Shelf, fake: Fake) -> None:
    swaps = Swaps(hold_at="warm").play(fake)
    async with window(120, 36) as pilot:
        await begin(pilot)
        await see(pilot, "4 of 5  warm")
        await fake.stop()
        await see(pilot, "[NO LINK]", "Swap 0042", "STALE")
        assert "(A Abort" in frame(pilot.app)
        swaps.hold_at = ""
        await fake.start()
        await see(pilot, "took the held requests", "[READY]", timeout_s=20)


async def test_the_same_profile_again_is_no_swap_and_a_failed_one_can_be_tried_or_edited(
    window, shelf: Shelf, fake: Fake
) -> None:
    shelf.revs["quick-verify"] = 0
    swaps = Swaps(fails="start").play(fake)
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        pilot.app.start_swap("quick-verify")
        await see(pilot, "Swap now")
        await pilot.press("tab", "enter")
        await see(pilot, "serves already")
        assert len(swaps.posts) == 1
        assert pilot.app.current_mode == "dash"
        pilot.app.start_swap("long-doc")
        await see(pilot, "-> long-doc", "Swap now")
        await pilot.press("tab", "enter")
        await see(pilot, "FAILED, rolled back")
        await until(pilot, lambda: pilot.app.screen.is_old_enough)
        await pilot.press("r")
        await see(pilot, "Review: swap quick-verify -> long-doc")
        await pilot.press("escape")
        await until(pilot, lambda: not pilot.app.screen.is_modal)
        await pilot.press("e")
        await see(pilot, "Edit  long-doc.yaml", "drain_timeout")
