"""The strip of stages at every width, and the words of a swap's end, from scripted swaps. Not here: the screen."""

import pytest

from tests.tui.swaps import Swaps
from tui.looks import Looks
from tui.panels import report
from tui.panels.pieces import plain
from tui.panels.stages import cells, strip
from tui.panels.swap import Around, abort_cost, age, running
from tui.snap import Facts

FIVE = ["DRAIN", "STOP", "START", "WARM", "CHECK"]


def ended(**script: object) -> Facts:
    """The document of a swap that has run to its end."""
    swaps = Swaps(**script)  # type: ignore[arg-type]
    _, swap = swaps.begin({"to": "long-doc", "rev": 7}, {"Idempotency-Key": "k"})
    for _ in range(40):
        swaps.step()
    assert swaps.current is None
    return Facts(swaps.find(swap["id"]))


def at(stage: str) -> tuple[Swaps, Facts]:
    """A swap that stands in one stage."""
    swaps = Swaps(hold_at=stage)
    _, swap = swaps.begin({"to": "long-doc", "rev": 7}, {"X-Colibri-User": "ops"})
    for _ in range(40):
        swaps.step()
    return swaps, Facts(swaps.find(swap["id"]))


@pytest.mark.parametrize("width", [116, 96, 76, 56, 38])
@pytest.mark.parametrize("script", [{}, {"fails": "warm"}, {"fails": "start", "rescue": "crashed"}])
def test_the_strip_names_every_stage_in_order_and_never_passes_the_width(width: int, script: dict[str, str]) -> None:
    swap = ended(**script)
    lines = [plain(line) for line in strip(cells(swap), width)]
    if width >= 56:
        assert all(len(line) <= width for line in lines), lines
    said = " ".join(lines[0::3]).replace("-", " ").split()
    assert said == [cell.name for cell in cells(swap)]
    assert said[:5] == FIVE


@pytest.mark.parametrize("width", [116, 76, 56])
def test_signs_and_times_stand_under_their_stage(width: int) -> None:
    names, signs, times = (plain(line) for line in strip(cells(ended()), width))
    for name, time in zip(FIVE, ("18.2 s", "0.6 s", "1.9 s", "6.9 s", "0.7 s"), strict=True):
        place = names.index(name)
        under = slice(max(0, place - 2), place + len(name) + 2)
        assert signs[under].strip() == "ok"
        assert times[under].strip() == time


def test_a_failure_shows_which_stage_and_what_came_to_the_rescue() -> None:
    names = [(cell.name, cell.sign) for cell in cells(ended(fails="warm"))]
    assert names == [("DRAIN", "ok"), ("STOP", "ok"), ("START", "ok"), ("WARM", "FAIL"), ("CHECK", "-"),
                     ("ROLLBACK", "ok"), ("READY", "ok")]  # fmt: skip
    last = [(cell.name, cell.sign) for cell in cells(ended(fails="stop", rescue="fallback"))][5:]
    assert last == [("ROLLBACK", "FAIL"), ("FALLBACK", "ok"), ("DEGRADED", "!")]
    last = [(cell.name, cell.sign) for cell in cells(ended(fails="stop", rescue="crashed"))][5:]
    assert last == [("ROLLBACK", "FAIL"), ("FALLBACK", "FAIL"), ("CRASHED", "x")]


def test_a_refused_plan_is_the_only_one_that_is_shown() -> None:
    assert [cell.name for cell in cells(ended(fails="plan"))][:2] == ["PLAN", "DRAIN"]
    assert next(cell.name for cell in cells(ended())) == "DRAIN"


def test_progress_carries_its_number_unit_rate_and_end() -> None:
    _, swap = at("warm")
    told = [plain(line) for line in running(swap, Around(), 96, 28, Looks(ascii=True))]
    bar = next(line for line in told if "GiB" in line and "[" in line)
    assert "11.00 / 17.00 GiB" in bar
    assert "1,040 MB/s" in bar
    assert "ETA 6.0 s" in bar
    assert " 65%" in bar
    share = bar[bar.index("[") + 1 : bar.index("]")]
    assert abs(share.count("#") / len(share) - 11 / 17) < 1 / len(share)


def test_the_clock_is_the_servers() -> None:
    swaps, swap = at("start")
    assert age(swap, swaps.now) == swaps.now - swap.num("started")  # type: ignore[operator]
    assert age(ended(), 0.0) == ended().num("ended") - ended().num("started")  # type: ignore[operator]


def test_an_abort_is_free_before_stop_and_says_what_it_costs_after() -> None:
    assert "costs nothing" in abort_cost(at("drain")[1])
    for stage in ("stop", "start", "warm", "check"):
        assert "starts quick-verify rev 0 again" in abort_cost(at(stage)[1])


@pytest.mark.parametrize("height", [6, 14, 19, 30])
def test_the_panel_keeps_to_its_height_and_drops_the_oldest_log_first(height: int) -> None:
    _, swap = at("check")
    told = [plain(line) for line in running(swap, Around(), 76, height, Looks())]
    assert len(told) <= height
    if height >= 19:
        assert "warm ok" in "\n".join(told)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ({}, "long-doc serves and took the held requests"),
        ({"fails": "plan"}, "nothing was stopped, quick-verify rev 0 goes on serving"),
        ({"fails": "warm"}, "quick-verify rev 0 was started again and is READY. No service for"),
        ({"fails": "start", "rescue": "fallback"}, "'fallback' serves now and the service is DEGRADED"),
        ({"fails": "start", "rescue": "crashed"}, "no engine runs"),
    ],
)
def test_the_end_is_told_in_words(script: dict[str, str], words: str) -> None:
    swap = ended(**script)
    told = " ".join(plain(line).strip() for line in report.ended(swap, 96, 40))
    assert words in told
    assert report.is_failed(swap) == bool(script)
    if script:
        assert f"{script['fails']} failed: " in told
    assert "3 kept, 0 lost" in told


def test_the_report_to_copy_holds_all_of_it() -> None:
    swap = ended(fails="warm", how="timeout")
    text = report.report(swap, "edge-07")
    for part in ("edge-07", "FAILED, rolled back", "180 s", "warm_timeout", "rollback", "got signal 15", "line 1"):
        assert part in text


def test_a_document_of_another_version_is_drawn_as_far_as_it_is_understood() -> None:
    odds = ({}, {"stages": 7, "rescue": [1], "reason": "x", "state": "new"}, {"stages": [{"name": 3, "state": []}]})
    for odd in odds:
        swap = Facts(odd)
        assert strip(cells(swap), 76)
        assert running(swap, Around(), 76, 19, Looks())
        assert report.ended(swap, 76, 19)
        assert report.report(swap)


def test_an_abort_is_told_as_one_and_not_as_a_fault() -> None:
    swaps, swap = at("warm")
    swaps.abort(swap.text("id"))
    swaps.step()
    going = Facts(swaps.find(swap.text("id")))
    assert "cannot be aborted" in abort_cost(going), "the way back is under way"
    while swaps.current is not None:
        swaps.step()
    done = Facts(swaps.find(swap.text("id")))
    assert "ABORTED, rolled back" in report.head(done)
    told = " ".join(plain(line).strip() for line in report.ended(done, 96, 40))
    assert "Why: aborted by ops in warm" in told
    assert "FAIL" not in told and "failed" not in told and "Try:" not in told
    assert "ABORT" in told and "quick-verify rev 0 was started again and is READY" in told
