"""Cuts text into pieces, step after step, as spans into one string. Not here: which steps a model takes (splitters.py).

Spans come one by one and nothing is copied: a megabyte of single digits is a million pieces.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from engine.tokenizer.classes import compiled

Span = tuple[int, int]
Step = Callable[[str, int, int], Iterator[Span]]

_DIGITS = re.compile("[0-9]+")
_SPACES = compiled(r"\s+")


def pieces(text: str, steps: Iterable[str | Step]) -> Iterator[str]:
    """The text in order and without loss, cut by every step."""
    is_wide = not text.isascii() and max(text) > "\uffff"
    spans: Iterable[Span] = [(0, len(text))] if text else []
    for step in steps:
        spans = _each(text, spans, _by_pattern(step, is_wide) if isinstance(step, str) else step)
    for start, end in spans:
        yield text[start:end]


def _each(text: str, spans: Iterable[Span], step: Step) -> Iterator[Span]:
    for start, end in spans:
        if end == start + 1:
            yield start, end
        else:
            yield from step(text, start, end)


def _by_pattern(pattern: str, is_wide: bool) -> Step:
    find = compiled(pattern, is_wide).finditer

    def cut(text: str, start: int, end: int) -> Iterator[Span]:
        for found in find(text, start, end):
            first, last = found.span()
            if first > start:
                yield start, first
            if last > first:
                yield first, last
            start = last
        if end > start:
            yield start, end

    return cut


def trailing_space(text: str, start: int, end: int) -> Iterator[Span]:
    r"""Cut off the white space at a span's end. The pattern for it, \s+$, is tried at every space of every run and
    so takes the square of a run's length."""
    cut = end
    while cut > start and _SPACES.match(text, cut - 1, cut):
        cut -= 1
    if cut > start:
        yield start, cut
    if end > cut:
        yield cut, end


def digit_thirds(text: str, start: int, end: int) -> Iterator[Span]:
    """Cut runs of ASCII digits before every third digit, counted from the right. The pattern for it looks ahead to the
    run's end from each place in it."""
    for found in _DIGITS.finditer(text, start, end):
        first, last = found.span()
        for cut in range(first + (last - first) % 3, last, 3):
            if cut > start:
                yield start, cut
            start = cut
    if end > start:
        yield start, end
