"""What a text's next tokens may be: guesses that a pass computes beside its own token. Not here: who is right (the
sampler of each row, generate.py), where guesses come from (lookup.py), whether they pay (meter.py).

A guess is kept only where the sampler, whose draw hangs on seed and position alone, chooses the same: same tokens as
without, greedy or sampled, whatever is guessed.
"""

from collections.abc import Iterable
from typing import Protocol

from engine.errors import UsageError
from engine.lookup import Lookup
from engine.meter import Chances, PassTimes, guesses_that_pay

MOST_GUESSES = 15  # with its own row a pass of 16: what reads weights rather than computes, and has rows of logits


class Speculator(Protocol):
    """The guesses for one text, and how many were computed (`n_drafted`) and right (`n_accepted`)."""

    n_drafted: int
    n_accepted: int

    def guess(self, most: int, rows: int) -> list[int]: ...
    def settle(self, made: list[int], n_guessed: int) -> None: ...
    def close(self) -> None: ...


def drafts_with_model(asked: str, draft_model: str | None) -> bool:
    """Whether a draft model is loaded; UsageError where kind and model contradict each other."""
    if asked == "draft-simple" and draft_model is None:
        raise UsageError("--spec-type draft-simple needs a smaller model: --spec-draft-model FILE", param="spec_type")
    if asked == "ngram-simple" and draft_model is not None:
        raise UsageError("--spec-type ngram-simple needs no draft model; leave one of the two out", param="spec_type")
    return draft_model is not None and asked != "none"


def spec_type_of(asked: str, load_mode: str, is_dense: bool, draft_model: str | None) -> str:
    """The kind in force: auto is draft-simple with a draft model, ngram-simple where each pass reads a dense model's
    rest from disk, else none."""
    if drafts_with_model(asked, draft_model):
        return "draft-simple"
    if asked != "auto":
        return asked
    return "ngram-simple" if load_mode == "stream" and is_dense else "none"


class LookupSpeculator:
    """Guesses from the text itself: at most `most` a pass, after `least` ids at least that stood before in it."""

    def __init__(self, ids: Iterable[int], least: int, most: int, times: PassTimes) -> None:
        self.n_drafted = self.n_accepted = 0
        self._lookup = Lookup(ids, least)
        self._most, self._times, self._chances = most, times, Chances()
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

    def close(self) -> None:
        """Nothing is held."""
