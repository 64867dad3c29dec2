"""Which cells of some lines have changed, so that only those are sent to the terminal. Not here: drawing them.

Over a slow line this is what a refresh costs: at 80x24 a second's news are a few numbers, not the screen.
"""

from collections.abc import Sequence
from itertools import zip_longest

from rich.cells import cell_len
from rich.text import Text
from textual.geometry import Region


def changed_regions(old: Sequence[Text], new: Sequence[Text], width: int) -> list[Region]:
    """For each line that differs the smallest stretch of cells that holds all of its changes."""
    found = []
    for y, (before, after) in enumerate(zip_longest(old, new)):
        if before is not None and after is not None:
            if before.plain == after.plain and before.spans == after.spans and before.style == after.style:
                continue
            start, end = _stretch(_letters(before), _letters(after))
        else:
            start, end = 0, width
        end = min(end, width)
        if end > start:
            found.append(Region(start, y, end - start, 1))
    return found


def _letters(line: Text) -> list[tuple[str, str]]:
    """Each letter with all styles that lie on it."""
    styles = [str(line.style)] * len(line.plain)
    for span in line.spans:
        for i in range(max(span.start, 0), min(span.end, len(styles))):
            styles[i] = f"{styles[i]} {span.style}"
    return list(zip(line.plain, styles, strict=True))


def _stretch(old: list[tuple[str, str]], new: list[tuple[str, str]]) -> tuple[int, int]:
    """The first and the last cell that differ, as a half-open stretch; empty when none does."""
    most, least = max(len(old), len(new)), min(len(old), len(new))
    first = next((i for i in range(least) if old[i] != new[i]), least)
    if first == most:
        return 0, 0
    start = _cells(new[:first])
    if len(old) != len(new) or _cells(old) != _cells(new):
        return start, max(_cells(old), _cells(new))
    last = next(i for i in range(most - 1, -1, -1) if old[i] != new[i])
    return start, max(_cells(old[: last + 1]), _cells(new[: last + 1]))


def _cells(letters: list[tuple[str, str]]) -> int:
    return cell_len("".join(letter for letter, _ in letters))
