"""The one question before a swap, and every other dialog of these screens: what enter does, what is sent. Scripted."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.tui.fake import Fake
from tests.tui.frames import frame, see, until
from tests.tui.shelf import Shelf
from tests.tui.swaps import Swaps
from tui.config import Config
from tui.dialogs.base import Ask, Dialog
from tui.dialogs.close import Close
from tui.dialogs.confirm_word import ConfirmWord
from tui.dialogs.conflict import Conflict
from tui.dialogs.name import NewName
from tui.dialogs.pick import Pick
from tui.dialogs.plan import PlanView
from tui.dialogs.review import OLD_S, Review, told
from tui.looks import Looks
from tui.panels import split
from tui.panels.pieces import plain
from tui.panels.plan import gap
from tui.snap import Facts


@pytest.fixture
def shelf(fake: Fake) -> Shelf:
    return Shelf(fake)


@pytest.fixture
def swaps(fake: Fake) -> Swaps:
    return Swaps().play(fake)


async def at_review(pilot, name: str = "long-doc") -> None:
    await see(pilot, "[READY]")
    pilot.app.start_swap(name)
    await see(pilot, f"-> {name} rev", "Swap now")


async def test_a08_enter_twice_and_escape_send_nothing_tab_enter_sends_one(window, shelf: Shelf, swaps: Swaps) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        await pilot.press("2")
        await see(pilot, ">* quick-verify")
        await pilot.press("j", "s")
        await see(pilot, "Swap now")
        await pilot.press("enter")
        await until(pilot, lambda: not pilot.app.screen.is_modal)
        await pilot.press("s")
        await see(pilot, "Swap now")
        await pilot.press("escape")
        await until(pilot, lambda: not pilot.app.screen.is_modal)
        assert swaps.posts == []
        await pilot.press("s")
        await see(pilot, "Swap now")
        swaps.hold_at = "drain"
        await pilot.press("tab", "enter", "enter", "enter")
        await see(pilot, "Swap 0042")
        assert [post["body"] for post in swaps.posts] == [{"to": "long-doc", "rev": 6, "note": ""}]


def dialogs(shelf: Shelf) -> dict[str, Callable[[], Dialog[Any]]]:
    plan = Facts(shelf.plan("long-doc", shelf.texts["long-doc"]))
    rows = [Facts(row) for row in shelf.listed()["profiles"]]
    return {
        "review": lambda: Review(plan, Facts(shelf.fake.state)),
        "conflict": lambda: Conflict("long-doc", Facts({})),
        "close": lambda: Close("long-doc"),
        "word": lambda: ConfirmWord("Delete x", ["Delete it?"], "x"),
        "pick": lambda: Pick("Which?", rows),
        "name": lambda: NewName("New", "", ["a"]),
        "plan": lambda: PlanView("long-doc", plan),
        "ask": lambda: Ask("Really?", ["It cannot be undone."]),
    }


async def test_every_dialog_opens_on_cancel_fits_its_window_and_enter_gives_nothing(window, shelf: Shelf) -> None:
    async with window(120, 36) as pilot:
        await see(pilot, "[READY]")
        for width, height in ((80, 24), (60, 16)):
            await pilot.resize_terminal(width, height)
            for name, make in dialogs(shelf).items():
                given: list[Any] = []
                dialog = make()
                await pilot.app.push_screen(dialog, given.append)
                await until(pilot, lambda d=dialog: d.is_current and d.focused is not None, what=name)
                assert dialog.focused is not None
                assert dialog.focused.id == "cancel", name
                lines = frame(pilot.app).splitlines()
                assert {len(line) for line in lines} == {width}, name
                await until(pilot, lambda d=dialog, h=height: d.query_one("#cancel").region.bottom < h, what=name)
                await pilot.press("enter", "enter")
                await until(pilot, lambda g=given: g == [None], what=name)
                assert pilot.app.screen.is_modal is False


async def test_the_review_tells_numbers_stages_rollback_and_side_effects(window, shelf: Shelf, swaps: Swaps) -> None:
    plan = shelf.plan("long-doc", shelf.texts["long-doc"])
    total = f"{plan['total_bytes'] / 2**30:.2f}"
    async with window(120, 36) as pilot:
        await at_review(pilot)
        for stage in plan["stages"]:
            assert f"{stage['name']} " in frame(pilot.app)
        await see(pilot, total, "no service for about 11 s", "roll back to quick-verify", "'fallback'", "429")
        await pilot.resize_terminal(80, 24)
        await see(pilot, total, "limits 60+15+30+180+20 s", "rollback   quick-verify", "Warnings: none.")


async def test_a_plan_of_over_ten_minutes_is_made_anew_before_it_counts(window, shelf: Shelf, swaps: Swaps) -> None:
    async with window(120, 36) as pilot:
        await at_review(pilot)
        asked = len(shelf.fake.bodies("POST", "/admin/plan"))
        review = pilot.app.screen
        review.asked_at -= OLD_S + 1
        shelf.revs["long-doc"] = 7  # somebody saved meanwhile
        await pilot.press("tab", "enter")
        await see(pilot, "was made anew: look again")
        assert len(shelf.fake.bodies("POST", "/admin/plan")) == asked + 1
        assert swaps.posts == []
        assert review.focused.id == "cancel"
        await pilot.press("tab", "enter")
        await until(pilot, lambda: swaps.posts)
        assert swaps.posts[0]["body"]["rev"] == 7


async def test_an_answer_that_is_lost_is_asked_for_again_with_the_same_key(window, shelf: Shelf, swaps: Swaps) -> None:
    async with window(120, 36) as pilot:
        await at_review(pilot)
        begin, lost = shelf.fake.answers["POST", "/admin/swap"], []

        def lose_the_first(asked):
            status, document = begin(asked)
            if not lost:
                lost.append(document)
                return 200, b"{"  # the line broke in the middle of the answer
            return status, document

        shelf.fake.answers["POST", "/admin/swap"] = lose_the_first
        await pilot.press("tab", "enter")
        await see(pilot, "Swap 0042")
        keys = {post["key"] for post in swaps.posts}
        assert len(swaps.posts) == 2
        assert len(keys) == 1 and keys != {""}
        assert [swap["id"] for swap in [*swaps.done, *filter(None, [swaps.current])]] == ["0042"]


async def test_where_a_note_is_required_there_is_no_swap_without_one(window, shelf: Shelf, swaps: Swaps) -> None:
    required = Config({**Config().values, "confirm_note": "required"})
    async with window(80, 24, config=required) as pilot:
        await at_review(pilot)
        await see(pilot, "A note is required here")
        await pilot.press("tab", "enter")
        await pilot.pause()
        assert swaps.posts == []
        await pilot.press("shift+tab", "shift+tab", *"why")
        await see(pilot, "Cancel has the focus")
        await pilot.press("tab", "tab", "enter")
        await until(pilot, lambda: swaps.posts)
        assert swaps.posts[0]["body"]["note"] == "why"


async def test_what_cannot_be_taken_sends_nothing_and_a_note_goes_along(window, shelf: Shelf, swaps: Swaps) -> None:
    async with window(80, 24) as pilot:
        await see(pilot, "[READY]")
        pilot.app.start_swap("nobody")
        await see(pilot, "there is no profile 'nobody'")
        await pilot.press("s")
        await see(pilot, "Swap to which profile?", "huge-test")
        await pilot.press("j", "j", "j", "j", "j", "enter")
        await see(pilot, "-> huge-test", "( Swap now )", "huge-test needs 121.4")
        await pilot.press("tab", "enter", "tab", "enter", "escape")
        await until(pilot, lambda: not pilot.app.screen.is_modal)
        assert swaps.posts == []
        pilot.app.start_swap("long-doc")
        pilot.app.start_swap("long-doc")
        await see(pilot, "Swap now")
        await until(pilot, lambda: [worker.group for worker in pilot.app.workers].count("swap") == 1)
        assert len(pilot.app.screen_stack) == 2, "two hasty keys, one review"
        await pilot.press("shift+tab", *"hl qs", "tab", "tab", "enter")
        await until(pilot, lambda: swaps.posts)
        assert [post["body"]["note"] for post in swaps.posts] == ["hl qs"]


def test_the_bars_add_up_and_the_new_engine_takes_the_place_of_the_old(fake: Fake) -> None:
    before = split.now(Facts(fake.state))
    assert before is not None
    after = split.after(before, Facts({"weights_bytes": 30 << 30, "kv_bytes": 1 << 30, "engine_bytes": 1 << 30}))
    for width in (20, 60, 90):
        for part in (before, after):
            told = plain(split.bar(part, width))
            assert len(told) == width
    assert after.other == before.other
    assert after.used == 32 << 30
    assert after.cache < before.cache, "the page cache gives way"


def test_a_plan_that_could_not_be_made_tells_why_and_no_figure(fake: Fake) -> None:
    zero = [{"name": name, "estimate_s": 0.0, "limit_s": 60.0, "note": "not needed"} for name in ("drain", "stop")]
    plan = Facts({
        "name": "gone", "verdict": "BAD", "fits": False, "errors": ["there is no file gone.gguf"], "total_bytes": None,
        "stages": zero, "gap_s": 0.0, "restart": True, "rollback": {"name": "quick-verify", "text": "2.2 s"},
    })  # fmt: skip
    for height in (24, 36):
        lines = [plain(line) for line in told(plan, Facts(fake.state), 76, height, Looks(ascii=True))]
        assert lines == ["no figures   BAD", "x there is no file gone.gguf"]
    assert gap(plan) == "cannot be started"
    assert not Review(plan, Facts(fake.state)).can_swap


def test_a_small_review_cuts_nothing_of_what_a_swap_does(fake: Fake) -> None:
    effects = [f"effect {n} takes more than a line of a small window and is told to its last word {n}" for n in "abc"]
    text = "still 100% in page cache; if that fails too, 'fallback'; all waiting requests are kept through both"
    plan = Facts({"name": "x", "total_bytes": 1 << 30, "weights_bytes": 1 << 30, "side_effects": effects,
                  "rollback": {"name": "a-profile-with-a-long-name", "text": text}, "warnings": ["mind"]})  # fmt: skip
    words = " ".join(" ".join(plain(line).split()) for line in told(plan, Facts(fake.state), 60, 16, Looks(ascii=True)))
    assert "kept through both" in words
    assert all(f"last word {n}" in words for n in "abc")
    assert words.index("! mind") < words.index("effect a")
