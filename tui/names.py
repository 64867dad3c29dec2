"""The screens' names, and the nearest name to a mistyped one. Not here: the screens (app.py), the keys (keymap.py)."""

from collections.abc import Iterable
from difflib import get_close_matches

MODES = ("dash", "profiles", "queue", "batch", "memory", "bench", "logs", "chat")


def hint(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for a close name, else an empty string, ready to end a sentence with."""
    near = get_close_matches(wrong, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""
