"""Rates of the last seconds from sums that only grow, with a clock by hand."""

from dataclasses import asdict

import pytest

from appliance.recent import NAMES, WINDOW_S, Recent
from engine.spent import Spent


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def test_rates_are_what_came_on_top_within_the_window() -> None:
    clock = Clock()
    recent = Recent(clock)
    for second in range(40):  # 3 tokens a second at first, then 8
        n = 3 * second if second < 20 else 60 + 8 * (second - 20)
        ns = n * 100_000_000
        recent.take(asdict(Spent(n, n, n, ns, ns // 4, 0, 0, 1000 * n, 5 * n, 3 * n, n, 0, 7 * n)))
        clock.now += 1.0
    found = recent.rates()
    assert found == pytest.approx({
        "seconds": WINDOW_S, "steps_s": 8.0, "tok_s": 8.0, "read_bytes_s": 8000.0, "reads_s": 56.0,
        "major_faults_s": 40.0, "busy_share": 0.8, "disk_share": 0.25, "expert_hit_share": 0.75,
    })  # fmt: skip


def test_who_rests_has_rates_of_nothing_and_no_shares_of_it() -> None:
    clock = Clock()
    recent = Recent(clock)
    for _ in range(3):
        recent.take(asdict(Spent(5, 5, 5, 500)))
        clock.now += 1.0
    found = recent.rates()
    assert (found["tok_s"], found["busy_share"]) == (0.0, 0.0)
    assert found["disk_share"] is None and found["expert_hit_share"] is None


def test_nothing_is_known_of_one_beat_of_none_and_of_a_worker_that_is_gone() -> None:
    clock = Clock()
    recent = Recent(clock)
    nothing = dict.fromkeys(NAMES)
    assert recent.rates() == nothing
    recent.take(None)
    recent.take(asdict(Spent()))
    assert recent.rates() == nothing
    clock.now += 1.0
    recent.take(asdict(Spent(1)))
    assert recent.rates()["steps_s"] == 1.0
    recent.forget()
    assert recent.rates() == nothing
