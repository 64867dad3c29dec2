"""At most so many requests in any minute, whatever their times; what the headers say is what then happens."""

import random

from appliance.rates import Rates


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_no_minute_has_more_than_the_rate_and_the_promised_time_is_kept() -> None:
    clock, draw = Clock(), random.Random(7)
    rates, taken = Rates(clock), []
    for _ in range(3000):
        clock.now += round(draw.expovariate(0.5) * 64) / 64  # exact sums
        said = rates.take(b"k", 20)
        recent = sum(1 for time in taken if time > clock.now - 60)
        assert (said.retry_s == 0) == (recent < 20)
        if said.retry_s == 0:
            taken.append(clock.now)
            assert said.left == 19 - recent
        else:
            assert said.left == 0
            assert sum(1 for time in taken if time > clock.now + said.retry_s - 60) < 20
            assert sum(1 for time in taken if time > clock.now + 0.99 * said.retry_s - 60) == 20
    assert len(taken) > 1000


def test_a_refused_request_does_not_push_the_next_one_away() -> None:
    clock = Clock()
    rates = Rates(clock)
    assert rates.take(b"k", 1).retry_s == 0
    for _ in range(50):
        clock.now += 1
        assert rates.take(b"k", 1).retry_s > 0
    clock.now += 10
    assert rates.take(b"k", 1).retry_s == 0


def test_keys_do_not_share_a_rate_and_a_lowered_one_holds_at_once() -> None:
    clock = Clock()
    rates = Rates(clock)
    for _ in range(10):
        assert rates.take(b"a", 10).retry_s == 0
        clock.now += 1
    assert rates.take(b"b", 1).retry_s == 0
    said = rates.take(b"a", 3)
    clock.now += said.retry_s
    assert rates.take(b"a", 3).retry_s == 0
    rates.keep({b"b"})
    assert rates.take(b"a", 1).retry_s == 0
    assert rates.take(b"b", 1).retry_s > 0


def test_the_headers_are_openai_s() -> None:
    assert Rates(Clock()).take(b"k", 60).headers() == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "60s",
    }
