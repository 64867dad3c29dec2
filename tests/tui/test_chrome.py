"""Status line, tabs and key line on every screen, at every size and in every look."""

import pytest

from tests.tui.frames import frame, see
from tui.keymap import MODES
from tui.looks import Looks

SIZES = [(120, 36), (100, 30), (80, 24), (60, 16), (40, 10)]


@pytest.mark.parametrize("ascii", [True, False], ids=["ascii", "full"])
@pytest.mark.parametrize("width,height", SIZES)
async def test_a02_every_screen_fits_its_window_and_says_who_serves(window, width: int, height: int, ascii: bool) -> None:
    async with window(width, height, looks=Looks(ascii=ascii)) as pilot:
        await see(pilot, "[READY]", "quick-verify")
        for mode in (*MODES, "help"):
            await pilot.app.switch_mode(mode)
            text = await see(pilot, "[READY]", "quick-verify")
            assert len(text.splitlines()) == height
            assert {len(line) for line in text.splitlines()} == {width}
            assert pilot.app.screen.max_scroll_y == 0
            assert not ascii or text.isascii(), [c for c in text if not c.isascii()]
            assert frame(pilot.app).splitlines()[-1].strip().endswith("q Quit")
