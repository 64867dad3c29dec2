"""What a text's next tokens may be: guesses that a pass computes beside its own token. Not here: who is right (the
sampler of each row, generate.py), where guesses come from (lookup.py), whether they pay (meter.py).

A guess is kept only where the sampler, whose draw hangs on seed and position alone, chooses the same: same tokens as
without, greedy or sampled, whatever is guessed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from engine.lookup import Lookup
from engine.meter import Chances, PassTimes, guesses_that_pay

SPEC_TYPES = ("auto", "none", "ngram-simple")
MOST_GUESSES = 15  # with its own row a pass of 16: what reads weights rather than computes, and has rows of logits


@dataclass(frozen=True, slots=True)
class Drafting:
    """How guesses are made: at most `most` a pass, after `least` ids at least that stood before in the text."""

    least: int = 1
    most: int = MOST_GUESSES


def spec_type_of(asked: str, load_mode: str, is_dense: bool) -> str:
    """The kind in force: auto is ngram-simple where each pass reads a dense model's rest from disk, else none."""
    if asked != "auto":
        return asked
    return "ngram-simple" if load_mode == "stream" and is_dense else "none"


class Speculator:
    """The guesses for one text, and how many were computed (`n_drafted`) and right (`n_accepted`)."""

    def __init__(self, ids: Iterable[int], drafting: Drafting, times: PassTimes) -> None:
        self.n_drafted = self.n_accepted = 0
        self._lookup = Lookup(ids, drafting.least)
        self._most, self._times, self._chances = drafting.most, times, Chances()
        self._guess: list[int] = []
        self._agreed = 0

    def guess(self, most: int, rows: int) -> list[int]:
        """The ids worth computing beside the `rows` rows of a pass, at most `most`."""
        self._guess, self._agreed = self._lookup.guess(min(most, self._most))
        return self._guess[: guesses_that_pay(self._chances, self._times, self._agreed, len(self._guess), rows)]

    def settle(self, made: list[int], n_guessed: int) -> None:
        """These tokens were made, with so many guesses computed beside the first."""
        self._chances.judge(self._agreed, self._guess, made)
        self._lookup.extend(made)
        self._guess = []
        self.n_drafted += n_guessed
        self.n_accepted += len(made) - 1
