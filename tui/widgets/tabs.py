"""The second line of every screen: which screens there are, and which one this is. Not here: the keys that switch."""

from rich.cells import cell_len
from rich.text import Text
from textual.widget import Widget

from tui.keymap import MODES, SHORT_TABS, TABS
from tui.looks import Looks

WIDE = 100


def tab_text(current: str, looks: Looks, width: int) -> Text:
    """` [1 Dash] 2 Profiles ...`: full names from 100 columns on, then short ones, then the digits alone."""
    for names, gap in ((TABS, " "), (SHORT_TABS, ""), (("",) * len(TABS), "")):
        if names is TABS and width < WIDE:
            continue
        line = Text(" " if names is TABS else "", no_wrap=True, end="")
        for i, (mode, name) in enumerate(zip(MODES, names, strict=True), 1):
            label = f"{i}{gap}{name}" if name else str(i)
            if mode == current:
                line.append(f"[{label}]", style=looks.style("strong"))
            else:
                line.append(f" {label} ")
        right = ("? Help  : Command  s Swap" if names is TABS else "? : s") + " "
        room = width - cell_len(line.plain) - len(right)
        if room >= 1:
            line.append(" " * room + right, style=looks.style("dim"))
            break
        if room + len(right) >= 0:
            break
    line.truncate(width, pad=True)
    return line


class TabLine(Widget):
    """One line; it changes with the screen's size and looks only."""

    def __init__(self, current: str) -> None:
        super().__init__()
        self._current = current
        self._looks = Looks()

    def show(self, looks: Looks) -> None:
        if looks != self._looks:
            self._looks = looks
            self.refresh()

    def render(self) -> Text:
        return tab_text(self._current, self._looks, self.size.width)
