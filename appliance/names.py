"""The nearest name to a mistyped one. Not here: which names exist."""

from collections.abc import Iterable
from difflib import get_close_matches


def hint(wrong: str, known: Iterable[str]) -> str:
    """"; did you mean 'x'?" for a close name, else an empty string, ready to end a sentence with."""
    near = get_close_matches(wrong, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""
