"""How a token is chosen: the settings, their ranges, one sequence's sampler. Not here: the choosing itself, an op
(kernels/sample.py). Imports no numba.

    repeat_penalty       tokens of the last repeat_last_n (prompt included): positive logits divided, others multiplied
    presence_penalty     taken off once from tokens generated within that window; the prompt does not count
    frequency_penalty    taken off per occurrence there
    logit_bias           added after the penalties
    temperature          0 (below 1e-5) is the greatest logit, whatever the rest says
    top_k typical_p top_p min_p     in this order, before the temperature
"""

import math
import secrets
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineFailed, InvalidParameter
from engine.kernels.regions import address_of
from engine.kernels.sampler import BIAS, MOST_TOP, PENALTY, RECORD, TOP

# name: (least, most, whole numbers only). top_k: anything from -1 on, 0 and -1 are off.
_RANGES: dict[str, tuple[float, float, bool]] = {
    "temperature": (0.0, 100.0, False),
    "top_k": (-1, 2**31 - 1, True),
    "top_p": (0.0, 1.0, False),
    "min_p": (0.0, 1.0, False),
    "typical_p": (0.0, 1.0, False),
    "repeat_penalty": (0.01, 100.0, False),
    "repeat_last_n": (-1, 2**31 - 1, True),
    "presence_penalty": (-2.0, 2.0, False),
    "frequency_penalty": (-2.0, 2.0, False),
}
_MOST_BIAS = 100.0


@dataclass(frozen=True)
class Sampling:
    """Settings of one request; `validate` raises InvalidParameter for the first that is out of range.

    repeat_last_n: -1 is the whole context, 0 switches the three penalties off. seed None: one is drawn at the start.
    grammar: what the answer must fit (engine/constrain.py), "" anything.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    grammar: str = ""

    def validate(self, n_vocab: int | None = None) -> None:
        """Check every value; with n_vocab also the ids of logit_bias."""
        for name, (least, most, whole) in _RANGES.items():
            _check(name, getattr(self, name), least, most, whole)
        if self.seed is not None:
            _check("seed", self.seed, -(2**63), 2**64 - 1, True)
        for token, bias in self.logit_bias.items():
            if not isinstance(token, int) or isinstance(token, bool) or token < 0:
                raise InvalidParameter(
                    f"logit_bias has the key {token!r}; keys are token ids, 0 or greater", param="logit_bias"
                )
            if n_vocab is not None and token >= n_vocab:
                raise InvalidParameter(
                    f"logit_bias names token {token}; this model's ids end at {n_vocab - 1}", param="logit_bias"
                )
            _check(f"logit_bias of token {token}", bias, -_MOST_BIAS, _MOST_BIAS, False, "logit_bias")


def _check(name: str, value: object, least: float, most: float, whole: bool, param: str | None = None) -> None:
    number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not least <= value <= most:  # type: ignore[arg-type, operator]
        kind = "a whole number" if whole else "a number"
        raise InvalidParameter(
            f"{name} is {value!r}; it must be {kind} from {least:g} to {most:g}", param=param or name
        )


class Bound(Protocol):
    """What an answer must fit, and how far it does (engine/constrain.py): `address` is of a bit for each token."""

    address: int
    forced: deque[int]
    failure: EngineFailed | None

    def fill(self) -> None: ...
    def accept(self, token: int) -> None: ...
    @property
    def is_complete(self) -> bool: ...


@dataclass(frozen=True)
class Choice:
    """What a sampler chose. `logprob` and `top` (likeliest first) are of the model's own distribution."""

    token: int
    logprob: float | None
    top: list[tuple[int, float]]


class Binds(Protocol):
    """Who reads grammars (engine/constrain.py)."""

    def start(self, grammar: str) -> Bound: ...


class SamplerSlot:
    """The sampler of one sequence: its record in memory (`address`) and the window of past tokens.

    n_logprobs: -1 none, 0 the chosen token's own, up to 200 the likeliest beside it. Raises InvalidParameter.
    """

    def __init__(
        self, sampling: Sampling, n_vocab: int, prompt_ids: Sequence[int], n_logprobs: int = -1,
        grammars: Binds | None = None,
    ) -> None:  # fmt: skip
        sampling.validate(n_vocab)
        _check("n_logprobs", n_logprobs, -1, MOST_TOP, True)
        self.sampling, self._n_vocab = sampling, n_vocab
        self.seed = sampling.seed if sampling.seed is not None else secrets.randbits(53)
        self._record: NDArray[np.void] = np.zeros(1, RECORD)
        self.address = address_of(self._record)
        self._biases: NDArray[np.void] = np.array([(t, b, 0, 0) for t, b in sampling.logit_bias.items()], BIAS)
        self._top: NDArray[np.void] = np.zeros(min(max(n_logprobs, 0), n_vocab), TOP)
        r = self._record[0]
        for name in ("temperature", "top_k", "top_p", "min_p", "typical_p"):
            r[name] = getattr(sampling, name)
        for name in ("repeat_penalty", "presence_penalty", "frequency_penalty"):
            r[name] = getattr(sampling, name)
        r["seed"], r["n_top"], r["top"] = self.seed % 2**64, n_logprobs, address_of(self._top)
        r["n_biases"], r["biases"] = len(self._biases), address_of(self._biases)
        self.rule: Bound | None = None
        if sampling.grammar:
            if grammars is None:
                raise InvalidParameter("this engine has no vocabulary to read a grammar with", param="grammar")
            self.rule = grammars.start(sampling.grammar)
            r["mask"] = self.rule.address
        self._window = self._make_window(sampling)
        if self._window is not None:
            n = sampling.repeat_last_n
            self._window.extend(prompt_ids if n < 0 else prompt_ids[-n:])
            self._publish()

    @staticmethod
    def _make_window(s: Sampling) -> "Window | None":
        neutral = s.repeat_penalty == 1.0 and s.presence_penalty == 0.0 and s.frequency_penalty == 0.0
        return None if neutral or s.repeat_last_n == 0 else Window(s.repeat_last_n)

    def prepared(self) -> "SamplerSlot":
        """This one, before a step that asks it: what may be chosen now is settled."""
        if self.rule is not None:
            self.rule.fill()
        return self

    def accept(self, token: int) -> None:
        """`token` was generated: it enters the window."""
        if self.rule is not None:
            self.rule.accept(token)
        if self._window is not None:
            self._window.push(token, True)
            self._publish()

    def after(self, token: int) -> "SamplerSlot":
        """A second sampler of this sequence for the place behind `token`, should that come next."""
        other = SamplerSlot(replace(self.sampling, seed=self.seed), self._n_vocab, (), int(self._record[0]["n_top"]))
        other._window = deepcopy(self._window)
        other.accept(token)
        return other

    @property
    def forced(self) -> int:
        """How many tokens come next whatever the logits say; 0 where each token's own logprob is wanted."""
        return len(self.rule.forced) if self.rule is not None and self._record[0]["n_top"] < 0 else 0

    def force(self) -> Choice:
        """The first of them."""
        assert self.rule is not None
        return Choice(self.rule.forced[0], None, [])

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow what was chosen."""
        return self.rule is not None and self.rule.is_complete

    @property
    def failed(self) -> bool:
        """The last step found no finite logits for it."""
        return int(self._record[0]["token"]) < 0

    def result(self) -> Choice:
        """What the last step chose; token -1 when the logits were not finite."""
        r = self._record[0]
        logprob = float(r["logprob"]) if r["n_top"] >= 0 else None
        return Choice(int(r["token"]), logprob, [(int(t), float(p)) for t, p in self._top])

    def _publish(self) -> None:
        assert self._window is not None
        r = self._record[0]
        r["n_penalties"], r["penalties"] = self._window.n, address_of(self._window.entries)


class Window:
    """The last `size` tokens (-1: all) as distinct entries with counts, kept up to date one token at a time."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.n = 0
        self.entries: NDArray[np.void] = np.zeros(64, PENALTY)
        self._places: dict[int, int] = {}
        self._tokens: deque[tuple[int, bool]] = deque()

    def extend(self, tokens: Iterable[int]) -> None:
        """Tokens of the prompt."""
        for token in tokens:
            self.push(token, False)

    def push(self, token: int, generated: bool) -> None:
        """The next token; the oldest leaves when the window is full."""
        if len(self._tokens) == self.size:
            self._leave(*self._tokens.popleft())
        self._tokens.append((token, generated))
        place = self._places.get(token)
        if place is None:
            if self.n == len(self.entries):
                self.entries = np.concatenate([self.entries, np.zeros(self.n, PENALTY)])
            place = self._places[token] = self.n
            self.entries[place] = (token, 0, 0, 0.0)
            self.n += 1
        self.entries["total"][place] += 1
        self.entries["generated"][place] += generated

    def _leave(self, token: int, generated: bool) -> None:
        place = self._places[token]
        self.entries["total"][place] -= 1
        self.entries["generated"][place] -= generated
        if self.entries["total"][place] == 0:
            self.n -= 1
            last = int(self.entries["token"][self.n])
            self.entries[place] = self.entries[self.n]
            self._places[last] = place
            del self._places[token]
