"""Signs and styles: a bar tells the truth, nothing is told by colour alone, every colour can be read on its ground."""

import pytest
from rich.style import Style

from tui.looks import DARK, LIGHT, MONO, SIXTEEN, Looks
from tui.theme import LIGHT as LIGHT_THEME
from tui.theme import SAFE

STATES = ("state-good", "state-working", "state-warning", "state-bad")


def luminance(rgb: tuple[int, int, int]) -> float:
    parts = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """As WCAG defines it."""
    a, b = sorted((luminance(one), luminance(other)), reverse=True)
    return (a + 0.05) / (b + 0.05)


def rgb(hex: str) -> tuple[int, int, int]:
    return int(hex[1:3], 16), int(hex[3:5], 16), int(hex[5:7], 16)


@pytest.mark.parametrize("table,theme", [(DARK, SAFE), (LIGHT, LIGHT_THEME)], ids=["dark", "light"])
def test_every_style_can_be_read_on_its_ground(table, theme) -> None:
    for meaning, text in table.items():
        style = Style.parse(text)
        if style.color is None:
            continue
        ground = tuple(style.bgcolor.triplet) if style.bgcolor else rgb(theme.background)
        assert contrast(tuple(style.color.triplet), ground) >= 4.5, meaning


def test_without_colours_the_four_meanings_still_look_different_and_use_no_colour() -> None:
    assert len({MONO[state] for state in STATES}) == 4
    for text in MONO.values():
        style = Style.parse(text)
        assert style.color is None and style.bgcolor is None


def test_sixteen_colours_use_the_terminals_own() -> None:
    for text in SIXTEEN.values():
        style = Style.parse(text)
        assert all(c is None or c.number is None or c.number < 16 for c in (style.color, style.bgcolor))


def test_all_tables_know_the_same_meanings() -> None:
    assert set(DARK) == set(LIGHT) == set(SIXTEEN) == set(MONO)


@pytest.mark.parametrize("ascii", [True, False])
def test_a_bar_is_empty_only_at_nothing_and_full_only_at_all(ascii: bool) -> None:
    looks = Looks(ascii=ascii)
    full, empty = ("#", "-") if ascii else ("█", "░")
    for part in range(1001):
        bar = looks.bar(part, 1000, 12)
        assert len(bar) == 12 and bar[0] + bar[-1] == "[]"
        assert bar[1:-1] == full * bar.count(full) + empty * bar.count(empty)
        assert (bar.count(full) == 0) == (part == 0) and (bar.count(full) == 10) == (part == 1000)
        assert abs(bar.count(full) - part / 100) <= 1


@pytest.mark.parametrize("part,whole", [(None, 10), (5, None), (5, 0), (-3, 10)])
def test_a_bar_of_nothing_known_is_empty(part, whole) -> None:
    assert Looks(ascii=True).bar(part, whole, 6) == "[----]"


def test_more_than_all_is_all() -> None:
    assert Looks(ascii=True).bar(12, 10, 6) == "[####]"


def test_a_spark_line_is_as_wide_as_asked_and_rises_with_its_numbers() -> None:
    for looks, steps in ((Looks(ascii=True), " .:-=+*#%@"), (Looks(), " ▁▂▃▄▅▆▇█")):
        line = looks.spark(list(range(100)), 20)
        heights = [steps.index(sign) for sign in line]
        assert len(line) == 20 and heights == sorted(heights) and heights[-1] == len(steps) - 1
        assert looks.spark([], 5) == "     " and looks.spark([0, 0], 4) == "    "
        assert looks.spark([0.001, 100], 2)[0] != " ", "a little is not nothing"
