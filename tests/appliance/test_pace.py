"""Pace: each second once, silence as zeros, whatever the gaps."""

import random
from collections import Counter

from appliance.pace import SECONDS, Pace


def test_seconds_are_told_oldest_first_without_the_one_going_on() -> None:
    pace = Pace()
    for second, n in ((100.2, 3), (100.9, 4), (101.0, 5), (103.5, 9)):
        pace.count(n, second)
    assert pace.history(103.9)[-4:] == [0, 7, 5, 0]
    assert pace.history(104.0)[-4:] == [7, 5, 0, 9]
    assert len(pace.history(104.0)) == SECONDS


def test_what_is_older_than_a_minute_is_gone() -> None:
    pace = Pace()
    pace.count(3, 10.0)
    assert pace.history(70.0)[0] == 3
    assert pace.history(71.0) == [0] * SECONDS
    assert pace.history(1e6) == [0] * SECONDS


def test_it_agrees_with_a_plain_count_over_random_gaps() -> None:
    rng = random.Random(3)
    pace, seen, now = Pace(), Counter[int](), 0.0
    for _ in range(3000):
        now += rng.choice((0.0, 0.01, 0.4, 1.0, 7.0, 59.5, 61.0, 200.0))
        n = rng.randrange(5)
        pace.count(n, now)
        seen[int(now)] += n
        assert pace.history(now) == [seen[second] for second in range(int(now) - SECONDS, int(now))]
