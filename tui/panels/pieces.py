"""Lines of a panel as pieces with a meaning, before any paint. Not here: which colour a meaning has (looks.py).

A pure renderer returns `Line`s: a plain string, or (text, meaning) pairs; so it can be tested without a terminal.
"""

import textwrap
from collections.abc import Iterable

from tui.words import plain as safe

Piece = tuple[str, str]
Line = str | list[Piece]


def plain(line: Line) -> str:
    """What the eye reads, without meanings."""
    return line if isinstance(line, str) else "".join(text for text, _ in line)


def text_of(lines: Iterable[Line]) -> str:
    return "\n".join(plain(line).rstrip() for line in lines)


def marked(lines: Iterable[Line], meaning: str) -> list[Line]:
    """Whole lines in one meaning."""
    return [[(plain(line), meaning)] for line in lines]


def wrapped(text: str, width: int, first: str = "") -> list[Line]:
    """A sentence over as many lines as it takes, `first` before it and as much room before the other lines."""
    room = max(8, width)
    found = textwrap.wrap(safe(text), room, initial_indent=first, subsequent_indent=" " * len(first),
                          break_on_hyphens=False)  # fmt: skip
    return list(found) or [first.rstrip()]
