"""Status line, tabs and key line on every screen, at every size and in every look."""

import pytest

from tests.tui.frames import frame, see, until
from tui.keymap import MODES
from tui.looks import Looks
from tui.pace import Pace

SIZES = [(120, 36), (100, 30), (80, 24), (60, 16), (40, 10)]


@pytest.mark.parametrize("ascii", [True, False], ids=["ascii", "full"])
async def test_a02_every_screen_fits_every_window_and_says_who_serves(window, ascii: bool) -> None:
    async with window(*SIZES[0], looks=Looks(ascii=ascii), pace=Pace(0.5)) as pilot:
        await see(pilot, "[READY]")
        for width, height in SIZES:
            await pilot.resize_terminal(width, height)
            for mode in (*MODES, "help"):
                await pilot.app.switch_mode(mode)
                await until(pilot, lambda w=width: set(map(len, frame(pilot.app).split("\n"))) == {w}, what=mode)
                text = await see(pilot, "[READY]", "quick-verify")
                assert len(text.split("\n")) == height
                assert {len(line) for line in text.split("\n")} == {width}
                assert pilot.app.screen.max_scroll_y == 0
                assert not ascii or text.isascii(), [c for c in text if not c.isascii()]
                assert text.split("\n")[-1].strip().endswith("q Quit")


async def test_a03_after_every_size_the_picture_and_the_focus_are_those_of_before(window) -> None:
    """Digits are masked: the clock goes on."""

    def masked() -> str:
        return "".join("9" if c.isdigit() else c for c in frame(pilot.app))

    async with window(120, 36, pace=Pace(0.5)) as pilot:
        await see(pilot, "[READY]")
        await see(pilot, "- Requests", "- Events")
        await until(pilot, lambda: pilot.app.screen.focused is not None)
        first, focus = masked(), pilot.app.screen.focused
        for size in [(80, 24), (60, 16), (30, 8), (200, 60), (40, 10), (120, 36)]:
            await pilot.resize_terminal(*size)
            await until(pilot, lambda w=size[0]: set(map(len, frame(pilot.app).split("\n"))) == {w})
        await until(pilot, lambda: masked() == first, what=f"the first picture\n{first}\n")
        assert pilot.app.screen.focused is focus
