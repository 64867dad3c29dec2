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
