"""The status line gives up its parts in a fixed order; profile and state stay to the last."""

import pytest

from tests.tui.fake import STATE
from tui.looks import Looks
from tui.snap import Facts, Link, Snap
from tui.widgets.status import status_text
from tui.widgets.tabs import tab_text

SNAP = Snap(Facts(STATE), Link(is_up=True, at=1.0), now=1.0)
LOOKS = Looks(ascii=True)
# In the order in which they go.
PARTS = ["14:02", "q8_0", "t16", "8192", "qwen3"]
NARROW = ["14:02", "q8_0", "t16", "8k", "qwen3"]


def test_the_line_of_the_picture_at_120_columns() -> None:
    assert status_text(SNAP, LOOKS, 120, [], "14:02:31").plain == (
        " COLIBRI edge-07 | quick-verify | qwen3-4b-q4_k_m | ctx 8192 | t16 | kv q8_0 | [READY] | q 3/16 | 23.4 tok/s"
        "   14:02:31 "
    )


def test_the_line_of_the_picture_at_80_columns() -> None:
    text = status_text(SNAP, LOOKS, 80, [], "14:02:31").plain
    assert text == f"{' quick-verify | qwen3-4b-q4_k_m | 8k t16 q8_0 | [READY] q3 23.4t/s':<74}14:02 "


@pytest.mark.parametrize("width", range(30, 140))
def test_parts_go_in_their_order_and_the_line_is_as_wide_as_the_window(width: int) -> None:
    text = status_text(SNAP, LOOKS, width, [], "14:02:31").plain
    assert len(text) == width
    assert "[READY]" in text and "quick-verify" in text
    there = [part in text for part in (PARTS if width >= 100 else NARROW)]
    assert there == sorted(there), f"{there} of {PARTS}: an earlier one stayed longer"


@pytest.mark.parametrize("width", [80, 120])
def test_between_two_profiles_no_facts_of_one_stand_beside_the_other(width: int) -> None:
    between = Snap(Facts({**STATE, "state": "swapping"}), Link(is_up=True, at=1.0), now=1.0)
    text = status_text(between, LOOKS, width, [], "14:02:31").plain
    assert "quick-verify | [SWAPPING" in text
    assert not any(part in text for part in ("8192", "8k", "t16", "q8_0", "qwen3"))


def test_marks_follow_the_state() -> None:
    text = status_text(SNAP, LOOKS, 120, ["RO", "PAUSED", "SLOW 5s", "HOLD"], "14:02:31").plain
    assert "[READY] [RO] [PAUSED] [SLOW 5s] [HOLD]" in text


def test_a_lost_link_takes_back_queue_and_speed() -> None:
    lost = Snap(Facts(STATE), Link(at=1.0, attempt=3), now=40.0)
    assert "[NO LINK] | q ? | -" in status_text(lost, LOOKS, 120, [], "14:02:31").plain


@pytest.mark.parametrize("width", range(20, 140))
def test_the_tabs_fit_and_mark_where_we_are(width: int) -> None:
    text = tab_text("logs", LOOKS, width).plain
    assert len(text) == width
    assert "[7" in text or width < 26


def test_the_tab_lines_of_the_pictures() -> None:
    left = " [1 Dash] 2 Profiles  3 Queue  4 Batch  5 Memory  6 Bench  7 Logs  8 Chat"
    right = "? Help  : Command  s Swap "
    assert tab_text("dash", LOOKS, 120).plain == left.ljust(120 - len(right)) + right
    narrow = f"{'[1Dash] 2Prof  3Queue  4Batch  5Mem  6Bench  7Logs  8Chat':<74}? : s "
    assert tab_text("dash", LOOKS, 80).plain == narrow
