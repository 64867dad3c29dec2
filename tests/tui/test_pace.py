"""The rate the user chose, and the slower one for a terminal that does not keep up."""

from tui.pace import RATES, Pace, usual_rate


def test_once_a_second_here_and_every_two_seconds_over_ssh() -> None:
    assert usual_rate({}) == 1.0
    assert usual_rate({"SSH_CONNECTION": "10.0.0.1 5000 10.0.0.2 22"}) == 2.0


def test_steps_go_through_the_rates_and_stop_at_the_ends() -> None:
    pace = Pace(1.0)
    seen = []
    for _ in range(6):
        pace.step(1)
        seen.append(pace.period_s)
    assert seen == [2.0, 5.0, 10.0, 10.0, 10.0, 10.0]
    for _ in range(9):
        pace.step(-1)
    assert pace.period_s == RATES[0]


def test_three_late_ticks_in_a_row_slow_down_and_a_calm_minute_takes_it_back() -> None:
    pace = Pace(1.0)
    for late in (2.0, 2.0, 0.0, 2.0, 2.0):
        pace.tick(late, 1.0 + late, 0.02)
    assert pace.slowed == "", "two in a row are no pattern"
    pace.tick(2.0, 3.0, 0.02)
    assert pace.slowed == "SLOW 2s"
    for _ in range(59):
        pace.tick(0.0, 1.0, 0.02)
    assert pace.slowed
    pace.tick(0.0, 1.0, 0.02)
    assert pace.slowed == "" and pace.period_s == 1.0


def test_a_busy_machine_is_not_taken_for_a_slow_terminal() -> None:
    pace = Pace(1.0)
    for _ in range(9):
        pace.tick(2.0, 3.0, 2.0)
    assert pace.slowed == ""


def test_it_never_asks_less_often_than_every_ten_seconds_nor_more_often_than_chosen() -> None:
    pace = Pace(2.0)
    for _ in range(60):
        pace.tick(5.0, 7.0, 0.0)
    assert pace.period_s == 10.0
    pace.choose(0.5)
    assert pace.period_s == 0.5
