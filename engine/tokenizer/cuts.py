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
    spans: Iterable[Span] = [(0, len(text))] if text else []
    for step in steps:
        spans = _each(text, spans, _by_pattern(step) if isinstance(step, str) else step)
    for start, end in spans:
        yield text[start:end]


def _each(text: str, spans: Iterable[Span], step: Step) -> Iterator[Span]:
    for start, end in spans:
        yield from step(text, start, end)


def _by_pattern(pattern: str) -> Step:
    find = compiled(pattern).finditer

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


def digit_thirds(*, word_border: bool) -> Step:
    """Cut runs of ASCII digits into threes counted from the right. The patterns for it look ahead to the run's end
    from each place in it. With `word_border` only runs that no letter or underscore follows are cut."""

    def cut(text: str, start: int, end: int) -> Iterator[Span]:
        for found in _DIGITS.finditer(text, start, end):
            first, last = found.span()
            if word_border and last < end and (text[last].isalnum() or text[last] == "_"):
                continue
            if first > start:
                yield start, first
            start = first
            for stop in range(first + ((last - first) % 3 or 3), last + 1, 3):
                yield start, stop
                start = stop
        if end > start:
            yield start, end

    return cut
