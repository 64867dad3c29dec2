"""Guesses from a smaller model of the same vocabulary, which reads along. Not here: loading it, its memory (load.py).

The small model draws with the same sampler, seed and positions: where both are as sure, both draw the same. Its own
passes cost time, so the meter weighs them too; where no guess pays, one is tried now and then.
"""

from time import perf_counter
from typing import Any, Protocol

from engine.errors import ColibriError, UsageError
from engine.gguf.layout import quoted
from engine.gguf.reader import GgufFile
from engine.meter import Chances, PassTimes, guesses_that_pay
from engine.sampling import Sampling

USUAL = (0.6, 0.6, 0.6, 0.65, 0.7, 0.75, 0.8)  # right guesses, the first, second, … of a draft, before any is judged
TRY_AGAIN = 32  # passes without a guess after which one is made
NEWER = 0.25  # weight of the newest time


class Model(Protocol):
    """What is needed of engine.generate.Engine."""

    info: Any

    def open(self, ids: list[int], sampling: Sampling, n_predict: int) -> Any: ...
    def again(self, seq: Any, ids: list[int], sampling: Sampling, n_predict: int, keep: int) -> Any: ...
    def step(self, seq: Any) -> Any: ...
    def close(self, seq: Any) -> None: ...


class DraftModel:
    """Guesses for one text, at most `most` a pass; `sampling` has the text's seed."""

    def __init__(
        self, model: Model, ids: list[int], sampling: Sampling, most: int, n_vocab: int, times: PassTimes
    ) -> None:
        self.n_drafted = self.n_accepted = 0
        self._model, self._text, self._sampling = model, list(ids), sampling
        self._most, self._n_vocab, self._times = most, n_vocab, times
        self._chances = Chances(USUAL)
        self._seq: Any = None
        self._kept = 0  # positions that the small model has read of this very text
        self._guess: list[int] = []
        self._idle = 0
        self._each: float | None = None  # seconds of a guess
        self._is_off = not self._knows(ids)

    def guess(self, most: int, rows: int) -> list[int]:
        """The ids worth computing beside the `rows` rows of a pass, at most `most`."""
        most = min(most, self._most)
        if self._is_off or most < 1:
            return []
        n = guesses_that_pay(self._chances, self._times, 1, most, rows, self._each or 0.0)
        self._idle = 0 if n else self._idle + 1
        if not n and self._idle < TRY_AGAIN:
            return []
        try:
            self._guess = self._drafted(max(1, n))
        except ColibriError:  # a small model that fails must not end the large one's answer
            self._is_off = True
        return self._guess

    def settle(self, made: list[int], n_guessed: int) -> None:
        """These tokens were made, with so many guesses computed beside the first."""
        if self._guess:
            self._chances.judge(1, self._guess, made)
            same = [guessed == token for guessed, token in zip(self._guess, made, strict=False)]
            n_same = same.index(False) if False in same else len(same)
            self._kept = len(self._text) + min(n_same, len(self._guess) - 1)
            self._idle = 0
        self._text += made
        self._guess = []
        self._is_off = self._is_off or not self._knows(made)
        self.n_drafted += n_guessed
        self.n_accepted += len(made) - 1

    def close(self) -> None:
        """Give its pages back."""
        if self._seq is not None:
            self._model.close(self._seq)

    def _drafted(self, n: int) -> list[int]:
        """The next `n` tokens by the small model, up to the first that the large one does not know."""
        is_first, began = self._seq is None, perf_counter()
        if is_first:
            self._seq = self._model.open(self._text, self._sampling, n)
        else:
            self._seq = self._model.again(self._seq, self._text, self._sampling, n, self._kept)
        guess: list[int] = []
        while len(guess) < n:
            token = self._model.step(self._seq).token
            guess += [] if token is None else [token]
        self._kept = len(self._text)
        if not is_first:  # that one has read the prompt
            each = (perf_counter() - began) / n
            self._each = each if self._each is None else self._each + (each - self._each) * NEWER
        return next((guess[:i] for i, token in enumerate(guess) if token >= self._n_vocab), guess)

    def _knows(self, ids: list[int]) -> bool:
        n_vocab: int = self._model.info.n_vocab
        return max(ids, default=0) < n_vocab


def check_vocabularies(gguf: GgufFile, draft: GgufFile) -> None:
    """UsageError unless both files give the same words to the ids that both have."""
    words, others = (file.metadata.get("tokenizer.ggml.tokens") for file in (gguf, draft))
    name = quoted(draft.path.name, 120)
    if not isinstance(words, list) or not isinstance(others, list):
        raise UsageError(f"the draft model {name} or the model has no vocabulary to compare", param="spec_draft_model")
    for i, (word, other) in enumerate(zip(words, others, strict=False)):
        if word != other:
            raise UsageError(
                f"the draft model {name} has another vocabulary: token {i} is {quoted(str(other))} there and"
                f" {quoted(str(word))} here; give a smaller model of the same family",
                param="spec_draft_model",
            )
