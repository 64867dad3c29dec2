"""Night windows and the words for when a batch will be done."""

from datetime import datetime, timedelta

import pytest

from appliance.batches.forecast import Forecast, Left, words
from appliance.batches.window import Window
from engine.errors import InvalidParameter

NIGHT = Window.parse("22:00-06:00")


def at(clock: str, day: int = 3) -> datetime:
    return datetime.fromisoformat(f"2026-03-0{day}T{clock}")


@pytest.mark.parametrize(
    ("clock", "is_open", "opens_min", "closes_min"),
    [
        ("21:59:30", False, 0.5, 0), ("22:00:00", True, 0, 480), ("23:30:00", True, 0, 390), ("05:59:00", True, 0, 1),
        ("06:00:00", False, 960, 0), ("12:00:00", False, 600, 0),
    ],
)  # fmt: skip
def test_a_window_over_midnight(clock: str, is_open: bool, opens_min: float, closes_min: float) -> None:
    now = at(clock)
    assert NIGHT.is_open(now) == is_open
    assert NIGHT.opens_in_s(now) == pytest.approx(60 * opens_min)
    assert NIGHT.closes_in_s(now) == pytest.approx(60 * closes_min)


def test_every_minute_of_many_windows_agrees_with_counting() -> None:
    for text in ("22:00-06:00", "06:00-22:00", "00:00-00:01", "23:59-00:00", "12:30-12:31", "00:00-00:00"):
        window = Window.parse(text)
        inside = {(window.begin + i) % 1440 for i in range(1440) if i == 0 or ((window.begin + i) % 1440 != window.end
                  and i < ((window.end - window.begin - 1) % 1440) + 1)}  # fmt: skip
        for minute in range(1440):
            now = at("00:00") + timedelta(minutes=minute)
            assert window.is_open(now) == (minute in inside), (text, now)
            later = now + timedelta(seconds=window.opens_in_s(now))
            assert window.is_open(later)


@pytest.mark.parametrize("text", ["", "22-6", "24:00-06:00", "22:00", "22:60-06:00", "nights", "22:00-06:00-07:00"])
def test_what_is_no_window_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(InvalidParameter, match="22:00-06:00"):
        Window.parse(text)


def test_work_is_done_in_open_hours_alone() -> None:
    assert NIGHT.finish(at("20:00"), 3600) == at("23:00")
    assert NIGHT.finish(at("05:30"), 3600) == at("22:30")
    assert NIGHT.finish(at("22:00"), 8 * 3600) == at("06:00", 4)
    assert NIGHT.finish(at("22:00"), 20 * 3600) == at("02:00", 6)
    assert Window.parse("00:00-00:00").finish(at("22:00"), 30 * 3600) == at("04:00", 5)


def test_the_words_name_the_time_its_range_and_another_day() -> None:
    assert words(None, at("01:00")) is None
    assert words(Left(15_000, 13_800, 16_200), at("01:00")) == "done by 05:10 ± 20 min"
    assert words(Left(120, 60, 180), at("23:59")) == "done by Wed 00:01 ± 1 min"
    assert words(Left(7200, 7200, 7200), at("05:00"), NIGHT) == "done by 23:00 ± 0 min"


def test_a_forecast_is_corrected_while_rows_grow_longer_and_pauses_do_not_count() -> None:
    """Rows cost a second per 100 bytes and 0.5 s each, the first half are short: the end is known within its range."""
    weights = [100] * 200 + [900] * 200
    costs = [w / 100 + 0.5 for w in weights]
    forecast = Forecast(sum(w + 200.0 for w in weights))
    assert forecast.left() is None
    clock, errors = 1000.0, []
    forecast.begin(clock)
    for i, (weight, cost) in enumerate(zip(weights, costs, strict=True)):
        if i == 150:
            clock += 86_400
            forecast.begin(clock)
        clock += cost
        forecast.note(weight + 200.0, clock)
        left = forecast.left()
        truth = sum(costs[i + 1 :])
        assert left is not None and left.low_s <= left.s <= left.high_s
        if i >= 40:
            errors.append(abs(left.s - truth) / max(truth, 60.0))
    assert max(errors) < 0.45 and errors[-1] < 0.05
    assert left is not None and left.s == 0
