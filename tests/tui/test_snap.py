"""What another version of the service may send: every reading gives a value or nothing, never an exception."""

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tui.fake import STATE
from tui.looks import Looks
from tui.problems import problems
from tui.snap import Facts, Link, Snap
from tui.widgets.status import status_text

LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON = st.recursive(LEAF, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)
KEYS = sorted(STATE)
STATES = st.dictionaries(st.sampled_from(KEYS), JSON)
FEW = settings(max_examples=60, deadline=None, derandomize=True, database=None,
               suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
UP = Link(url="http://x", is_up=True, at=1.0)


@FEW
@given(STATES, st.sampled_from([*KEYS, "memory.worker.rss_bytes", "swap.n", "a.b.c", ""]))
def test_any_document_can_be_read_at_any_path(document: dict, path: str) -> None:
    facts = Facts(document)
    assert isinstance(facts.text(path), str) and facts.text(path).isprintable()
    number = facts.num(path)
    assert number is None or math.isfinite(number)
    assert all(isinstance(row, Facts) for row in facts.rows(path))
    assert all(math.isfinite(n) for n in facts.numbers(path))
    assert facts.flag(path) in (None, True, False)


@FEW
@given(STATES, st.integers(20, 200), st.booleans())
def test_any_document_gives_a_status_line_and_a_banner(document: dict, width: int, is_up: bool) -> None:
    snap = Snap(Facts(document), UP if is_up else Link(at=1.0, attempt=1, lost_at=1.0, retry_at=3.0), now=2.0)
    line = status_text(snap, Looks(ascii=True), width, ["RO"], "14:02:31")
    assert line.cell_len == width
    for problem in problems(snap):
        assert problem.title.isprintable()


def test_numbers_that_are_none_are_not_taken_for_numbers() -> None:
    facts = Facts({"a": True, "b": float("nan"), "c": float("inf"), "d": "7", "e": 10**400, "f": 7})
    assert [facts.num(key) for key in "abcdef"] == [None, None, None, None, None, 7.0]


def test_control_characters_of_a_name_do_not_reach_the_terminal() -> None:
    assert Facts({"n": "a\x1b[2Jb\u202ec\n"}).text("n") == "a?[2Jb?c "


def test_an_older_and_a_newer_service_are_named_as_such() -> None:
    def fault(**document: object) -> str:
        return Snap(Facts(document), UP, now=1.0).api_fault

    assert fault(api=1) == ""
    assert "this program is older" in fault(api=2)
    assert "the service is older" in fault(api=0)
    assert "does not say" in fault() and "does not say" in fault(api="1")


def test_the_nine_states_have_nine_words() -> None:
    def word(**document: object) -> str:
        return Snap(Facts(document), UP, now=1.0).word

    words = [word(state=s) for s in ("stopped", "ready", "draining", "degraded", "crashed", "bench")]
    words.append(word(state="loading", progress={"done": 41, "total": 100}))
    words.append(word(state="swapping", swap={"n": 4, "of": 5}))
    words.append(Snap(Facts({"state": "ready"}), Link()).word)
    assert words == ["STOPPED", "READY", "DRAINING", "DEGRADED", "CRASHED", "BENCH", "LOADING 41%", "SWAPPING 4/5",
                     "NO LINK"]  # fmt: skip
    assert word(state="loading", progress={"done": 1, "total": 0}) == "LOADING"
    assert word() == "UNKNOWN"
