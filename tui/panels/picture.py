"""What a panel shows: lines, its title and what stands at the right of it. Not here: which facts (one file per panel).

Every renderer beside this file is a pure function (snap, looks, width, height) -> Picture. It takes any document, also
one of another version of the service, never raises, and shows "-" for what it is not told.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from tui.looks import Looks
from tui.snap import Snap

Part = str | tuple[str, str]
ROOMY = 34  # cells: a third of 120 columns has 36 and shows everything, a third of 100 has 29 and shows less


class Picture(NamedTuple):
    """`lines` are at most as wide and as many as was asked for; `right` belongs at the right of the title."""

    lines: list[Text]
    right: str = ""


def drawn(lines: Sequence[Sequence[Part]], looks: Looks, width: int, height: int, right: str = "") -> Picture:
    """Lines of parts as a picture of this size: what is too wide is cut with a sign, what is too long left out."""
    return Picture([cut(looks.line(*parts), width, looks.more) for parts in lines[: max(height, 0)]], right)


def cut(line: Text, width: int, more: str) -> Text:
    """The line in at most `width` cells; a wide letter that does not fit becomes a space."""
    if line.cell_len <= width:
        return line
    if width <= len(more):
        return Text(more[: max(width, 0)], end="", no_wrap=True)
    line = line.copy()
    line.truncate(width - len(more), overflow="crop")
    line.append(more)
    return line


def mark(snap: Snap) -> str:
    """What follows a number that may not hold any more."""
    return "?" if snap.is_old else ""
