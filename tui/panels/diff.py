"""Two texts side by side, line by line, as difflib sees them. Not here: what a change does (plan.py), the screen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher


@dataclass(frozen=True)
class Row:
    """One row of the picture; a number counts from 1, and a side that has nothing there is None."""

    left: str | None
    right: str | None
    left_no: int | None
    right_no: int | None
    is_change: bool


def rows(old: str, new: str) -> list[Row]:
    """Every line of both texts once, equal ones beside each other, a changed key beside itself."""
    a, b = old.splitlines(), new.splitlines()
    found: list[Row] = []
    for tag, a0, a1, b0, b1 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        pairs: Iterator[tuple[int | None, int | None]]
        if tag == "equal":
            pairs = zip(range(a0, a1), range(b0, b1), strict=True)
        else:
            pairs = _partners(a, b, range(a0, a1), range(b0, b1))
        for i, j in pairs:
            found.append(
                Row(
                    None if i is None else a[i],
                    None if j is None else b[j],
                    None if i is None else i + 1,
                    None if j is None else j + 1,
                    tag != "equal",
                )
            )
    return found


def _partners(
    a: Sequence[str], b: Sequence[str], left: range, right: range
) -> Iterator[tuple[int | None, int | None]]:
    """Lines of a changed stretch: those of one YAML key stand beside each other, the rest in their order."""
    match = SequenceMatcher(None, [_key(a[i]) for i in left], [_key(b[j]) for j in right], autojunk=False)
    for tag, a0, a1, b0, b1 in match.get_opcodes():
        olds, news = list(left[a0:a1]), list(right[b0:b1])
        if tag == "equal":
            yield from zip(olds, news, strict=True)
        else:
            yield from ((i, None) for i in olds)
            yield from ((None, j) for j in news)


def _key(line: str) -> str:
    """What must be the same for two lines to be one key with two values."""
    body = line.lstrip()
    return body if body.startswith("#") or ":" not in body else body.partition(":")[0]


def counts(found: Sequence[Row]) -> tuple[int, int]:
    """Lines that come and lines that go."""
    added = sum(row.is_change and row.right is not None for row in found)
    removed = sum(row.is_change and row.left is not None for row in found)
    return added, removed


@dataclass(frozen=True)
class Line:
    """One line of a picture of the difference; `change` is the number of the stretch it belongs to, or None."""

    no: int | None
    sign: str
    text: str
    change: int | None


def _numbered(found: Sequence[Row], only_changes: bool) -> Iterator[tuple[Row, int | None]]:
    change, before = -1, False
    for row in found:
        change += row.is_change and not before
        before = row.is_change
        if row.is_change or not only_changes:
            yield row, change if row.is_change else None


def split(found: Sequence[Row], only_changes: bool = False) -> tuple[list[Line], list[Line]]:
    """Both sides with equally many lines."""
    left, right = [], []
    for row, change in _numbered(found, only_changes):
        minus, plus = ("-", "+") if row.is_change else (" ", " ")
        left.append(Line(row.left_no, minus if row.left is not None else " ", row.left or "", change))
        right.append(Line(row.right_no, plus if row.right is not None else " ", row.right or "", change))
    return left, right


def unified(found: Sequence[Row], only_changes: bool = False) -> list[Line]:
    """One column: of a changed key the old line, then the new one."""
    lines = []
    for row, change in _numbered(found, only_changes):
        if not row.is_change:
            lines.append(Line(row.right_no, " ", row.right or "", None))
            continue
        if row.left is not None:
            lines.append(Line(row.left_no, "-", row.left, change))
        if row.right is not None:
            lines.append(Line(row.right_no, "+", row.right, change))
    return lines


def starts(lines: Sequence[Line]) -> list[int]:
    """The first line of each stretch of changes, for "next" and "previous"."""
    found: list[int] = []
    before: int | None = None
    for index, line in enumerate(lines):
        if line.change is not None and line.change != before:
            found.append(index)
        before = line.change
    return found
