"""Regular expressions with Unicode classes, compiled for the standard library. Not here: which model uses which.

Understood beyond `re`: \\p{L}, \\p{Lu} and so on, and \\s and \\S by Unicode's White_Space (Python's own \\s also takes
U+001C to U+001F, which no tokenizer does).
"""

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import cache

Runs = list[tuple[int, int]]

WHITE_SPACE: Runs = [
    (0x09, 0x0D), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000),
]  # fmt: skip
# Planes 4 to 13 hold nothing and 15, 16 are private: leaving them out makes the scan five times shorter (25 ms).
_ASSIGNED = (range(0x32400), range(0xE0000, 0xE0200))
_TOKEN = re.compile(r"(\[\^?)(?:\\.|[^\]\\])+\]|\\[sS]|\\p\{[\w!-]+\}|\\.|.", re.DOTALL)
_ITEM = re.compile(r"\\p\{([\w!-]+)\}|\\u([0-9a-f]{4})|\\(.)|(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


@cache
def _by_category() -> dict[str, Runs]:
    """General category -> its runs of code points, ascending."""
    runs: dict[str, Runs] = {}
    for plane in _ASSIGNED:
        start, current = plane.start, unicodedata.category(chr(plane.start))
        for point in plane:
            category = unicodedata.category(chr(point))
            if category != current:
                runs.setdefault(current, []).append((start, point - 1))
                start, current = point, category
        runs.setdefault(current, []).append((start, plane.stop - 1))
    return runs


@cache
def members(name: str) -> Runs:
    """The runs of \\p{name}: `L` takes every category that begins with it, `L!a-z` leaves out ASCII's small letters."""
    if name in ("L!a-z", "L!A-Z"):
        return [run for run in members("L") if chr(run[0]) != name[2]]
    runs = [run for category, found in _by_category().items() if category.startswith(name) for run in found]
    if not runs:
        raise ValueError(f"no Unicode class is called {name!r}")
    return runs


def bracket(runs: Iterable[tuple[int, int]], top: int, negated: bool = False) -> str:
    """A bracket expression for code points up to `top`. A negated one lists what is left: `re` finds a member of a long
    list faster than it makes sure of an absence (a megabyte of underscores: 10 ms instead of 600)."""
    joined: list[list[int]] = []
    for first, last in sorted(runs):
        if first > top:
            break
        last = min(last, top)
        if joined and first <= joined[-1][1] + 1:
            joined[-1][1] = max(joined[-1][1], last)
        else:
            joined.append([first, last])
    if negated:
        edges = [-1, *(edge for run in joined for edge in run), top + 1]
        joined = [[a + 1, b - 1] for a, b in zip(edges[::2], edges[1::2], strict=True) if a + 1 <= b - 1]
    return f"[{''.join(f'{re.escape(chr(a))}-{re.escape(chr(b))}' for a, b in joined)}]"


def _items(inside: str) -> Runs:
    """The runs of a bracket expression's inside: classes, escapes, characters and ranges of them."""
    runs: Runs = []
    is_range = False
    for found in _ITEM.finditer(inside):
        name, code, escaped, plain = found.groups()
        if name:
            runs += members(name)
        elif escaped == "s":
            runs += WHITE_SPACE
        elif plain == "-" and runs and not is_range:
            is_range = True
        else:
            point = int(code, 16) if code else ord(_ESCAPES.get(escaped, escaped) if escaped else plain)
            runs.append((runs.pop()[0], point) if is_range else (point, point))
            is_range = False
    return runs


def expand(pattern: str, top: int = sys.maxunicode) -> str:
    """The pattern with every class written out for `re`, for texts without a character over `top`."""
    out: list[str] = []
    for found in _TOKEN.finditer(pattern):
        text, opening = found.group(0), found.group(1)
        if opening:
            out.append(bracket(_items(text[len(opening) : -1]), top, negated=opening == "[^"))
        elif text.startswith(r"\p"):
            out.append(bracket(members(text[3:-1]), top))
        elif text in (r"\s", r"\S"):
            out.append(bracket(WHITE_SPACE, top, negated=text == r"\S"))
        else:
            out.append(text)
    return "".join(out)


@cache
def compiled(pattern: str, is_wide: bool = True) -> re.Pattern[str]:
    """The pattern ready to search with; compiled once per process. Not `is_wide` is for texts inside the first 65,536
    code points: `re` keeps those in a bitmap and the rest in a list, so that a word costs a third without the rest."""
    return re.compile(expand(pattern, sys.maxunicode if is_wide else 0xFFFF))
