"""The meter: chances, costs, and how many guesses it lets through. Not here: the guesses, an engine."""

import random

import pytest

from engine.meter import STALE, USUAL, Chances, PassTimes, guesses_that_pay


def timed(seconds: dict[int, float]) -> PassTimes:
    times = PassTimes()
    for rows, took in seconds.items():
        times.took(rows, took)
    return times


def sure(chance: float) -> Chances:
    """A text whose guesses are right so often, whatever agrees."""
    chances, rng = Chances(), random.Random(3)
    for agreed in (1, 2, 3, 4, 7, 12, 30):
        for _ in range(400):
            chances.judge(agreed, [1], [int(rng.random() < chance)])
    return chances


def test_a_disk_scan_takes_all_guesses_and_memory_takes_few() -> None:
    disk = timed({1: 1.0, 2: 1.0, 4: 1.02, 8: 1.05, 16: 1.1})
    memory = timed({1: 0.01, 2: 0.014, 4: 0.02, 8: 0.035, 16: 0.06})
    assert guesses_that_pay(Chances(), disk, 20, 15, 1) == 15
    assert guesses_that_pay(Chances(), disk, 1, 15, 1) >= 1, "one in six right is worth a row that costs nothing"
    assert guesses_that_pay(Chances(), memory, 1, 15, 1) == 0
    assert 1 <= guesses_that_pay(Chances(), memory, 2, 15, 1) <= 3
    assert guesses_that_pay(Chances(), disk, 20, 4, 1) == 4, "no more than there are"


@pytest.mark.parametrize("seconds", [(1.0, 1.1, 1.2, 1.5, 2.5), (1.0, 1.5, 1.6, 1.7, 1.8), (1.0, 1.8, 2.2, 3.0, 4.5)])
def test_the_number_taken_makes_most_tokens_a_second(seconds: tuple[float, ...]) -> None:
    by_rows = dict(zip((1, 2, 4, 8, 16), seconds, strict=True))
    times = timed(by_rows)
    for agreed in (1, 2, 5, 30):
        chances = Chances()
        best, best_rate = 0, 1.03
        for k in range(1, 16):
            reach = [1.0]
            for i in range(k):
                reach.append(reach[-1] * chances.of(agreed + i))
            cost = by_rows[min(rows for rows in by_rows if rows > k)]
            if (rate := sum(reach) / cost) > best_rate:
                best, best_rate = k, rate
        assert guesses_that_pay(chances, times, agreed, 15, 1) == best


def test_guesses_that_turn_out_wrong_are_given_up_and_right_ones_come_back() -> None:
    times, chances = timed({1: 1.0, 2: 1.2, 4: 1.3, 8: 1.5, 16: 1.9}), Chances()
    assert guesses_that_pay(chances, times, 3, 15, 1) > 0
    for _ in range(12):
        chances.judge(3, [5, 6], [7])
    assert guesses_that_pay(chances, times, 3, 15, 1) == 0
    for _ in range(12):  # judged though not computed
        chances.judge(3, [5, 6], [5])
    assert guesses_that_pay(chances, times, 3, 15, 1) > 0


def test_chances_approach_what_happens_and_are_kept_apart_by_how_much_agrees() -> None:
    for chance in (0.1, 0.5, 0.9):
        assert abs(sure(chance).of(7) - chance) < 0.2
    chances = Chances()
    for _ in range(30):
        chances.judge(1, [1], [2])
    assert chances.of(1) < 0.1 and chances.of(2) == USUAL[1] and chances.of(40) == USUAL[-1]


def test_only_what_came_is_judged_and_the_first_wrong_guess_ends_it() -> None:
    chances = Chances()
    chances.judge(1, [4, 5, 6, 7], [4, 9])
    assert chances.of(1) > USUAL[0] and chances.of(2) < USUAL[1]
    assert (chances.of(3), chances.of(4)) == (USUAL[2], USUAL[3])
    chances.judge(30, [], [4])
    assert chances.of(30) == USUAL[-1]


def test_the_plain_pass_is_measured_first() -> None:
    times = PassTimes()
    assert times.cost(1, 3) is None and guesses_that_pay(Chances(), times, 30, 15, 1) == 0
    times.took(1, 0.5)
    assert times.cost(1, 3) == 1.0, "never tried, so it is tried"
    times.took(4, 0.75)
    assert times.cost(1, 3) == 1.5 and times.cost(1, 7) == 1.5 and times.cost(1, 1) == 1.0


def test_a_time_that_is_old_is_taken_anew() -> None:
    times = timed({1: 1.0, 16: 9.0})
    assert times.cost(1, 15) == 9.0
    for _ in range(STALE + 1):
        times.took(1, 1.0)
    assert times.cost(1, 15) == 1.0
    for _ in range(STALE + 1):
        times.took(16, 1.0)
    assert times.cost(1, 15) is None


def test_one_slow_pass_counts_less_than_one_fast_one() -> None:
    times = timed({1: 1.0, 2: 1.0})
    times.took(2, 3.0)
    slow = times.cost(1, 1)
    assert slow is not None and slow <= 1.2
    times.took(2, 1.0)
    assert times.cost(1, 1) == pytest.approx(1.1)


def test_beside_other_sequences_a_pass_is_shared() -> None:
    times = timed({4: 1.0, 8: 1.5, 16: 4.5})
    assert guesses_that_pay(sure(0.99), times, 30, 15, 4) == 4, "eight rows, not sixteen"
    assert guesses_that_pay(sure(0.3), times, 30, 15, 4) == 0
