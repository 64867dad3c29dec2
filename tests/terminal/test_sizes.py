"""A window that changes its size under the running program, in tmux. Not here: what each size shows (tests/tui)."""

import re
import time
from pathlib import Path

from tests.terminal.conftest import Served
from tests.terminal.tmux import Tmux


def words(screen: str) -> list[str]:
    """The screen without numbers, bars and lines: what stays when values change."""
    return [word for word in re.findall(r"[A-Za-z]{3,}", screen) if set(word) != {"o"}]


def settled(terminal: Tmux) -> str:
    """The screen once its words stay the same for a while."""
    shown, until = "", time.monotonic() + 10
    while time.monotonic() < until:
        before, shown = shown, terminal.screen()
        if before and words(before) == words(shown):
            break
        time.sleep(0.4)
    return shown


def test_the_screen_survives_every_size(served: Served, tmp_path: Path) -> None:
    """Smaller and smaller, larger and back: never a line too long, and the last frame has the words of the first."""
    with Tmux(served.argv("--rate", "0.5"), served.at(), tmp_path, columns=120, rows=36) as terminal:
        terminal.wait(r"\[READY\]")
        terminal.wait("q Quit")
        first = settled(terminal)
        for columns, rows in ((80, 24), (60, 16), (30, 8), (200, 60), (120, 36)):
            terminal.resize(columns, rows)
            lines = settled(terminal).rstrip("\n").splitlines()
            assert len(lines) <= rows and max(map(len, lines)) <= columns
            assert "READY" in "".join(lines), lines
        assert words(settled(terminal)) == words(first)
        terminal.keys("q")
        assert terminal.ended() == "0"
