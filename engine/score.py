"""How likely each of a few given continuations of a text is, from one reading of it. Not here: what an option means.

    seq = engine.score(ids, options)           options: token ids; ln(probability) of each in seq.scores at the end
    while engine.step(seq).finish is None: ...

ln p(option) is the sum over its tokens of ln p(token | text and the tokens before it), and with `ends` of ln p(one of
them | text and option), which tells an option from a longer one that begins with it. The text is read once; then every
chain of tokens that somebody's next token hangs from is read behind it, each behind the text alone: its rows lie where
a guess would lie, and are overwritten by the next chain. The options' common beginning is read once and stays.
"""

import math
from collections.abc import Iterable
from collections.abc import Sequence as Several
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineFailed
from engine.sampling import SamplerSlot
from engine.sequence import Part, Phase, Sequence, StepOut

Ids = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Scored(Sequence):
    """A text whose continuations are `options`. `scores` are set with `finish`."""

    options: tuple[Ids, ...] = ()
    ends: frozenset[int] = frozenset()
    scores: list[float] = field(default_factory=list)
    broken: EngineFailed | None = None
    _known: dict[Ids, dict[int, float]] = field(default_factory=dict)  # of a beginning: its next tokens' ln p
    _chains: list[Ids] = field(default_factory=list)  # still to be read; the common beginning is the first
    _chain: Ids = ()
    _n_read: int = 0  # tokens of the chain that is being read
    _base: int = 0  # positions that stay

    @property
    def failure(self) -> EngineFailed | None:
        return self.broken

    def samplers(self, part: Part) -> list[SamplerSlot]:
        """Nothing is chosen."""
        return []

    def scored(self, part: Part, logits: NDArray[np.float32], phase: Phase) -> StepOut:
        """The part's rows were computed; `logits` (wanted, n_vocab) are those of its last ones."""
        self.kv.advance(len(part.ids))
        if not np.isfinite(logits).all():
            self.is_sound, self.finish = False, "stop"
            self.broken = EngineFailed("the model computed numbers that are no numbers (NaN); its file may be damaged")
            return self._out(phase)
        if phase == "prefill":
            self._base = self.kv.length
            self._chains = chains(self.options, bool(self.ends))
            self._look((), logits[0])
        else:
            for i, row in enumerate(logits, self._n_read + 1):
                self._look(self._chain[:i], row)
            self._n_read += len(part.ids)
        if self._n_read == len(self._chain):
            self._next()
        else:
            self._feed()
        return self._out(phase)

    def _look(self, before: Ids, row: NDArray[np.float32]) -> None:
        """Keep ln p of every token that an option has behind `before`; `ends` stand under -1."""
        n = len(before)
        wanted = {option[n] for option in self.options if len(option) > n and option[:n] == before}
        if not wanted and not self.ends:
            return
        whole = ln_whole(row)
        found = {token: ln_p(row, (token,), whole) for token in wanted}
        if self.ends and before in self.options:
            found[-1] = ln_p(row, self.ends, whole)
        self._known[before] = found

    def _next(self) -> None:
        """The next chain, behind the common beginning or, if it is that itself, behind the text."""
        common = beginning(self.options)
        if self._chain and self._chain == common:
            self._base = self.kv.length
        else:
            self.kv.truncate(self._base)
        while self._chains:
            chain = self._chains.pop(0)
            self._chain, self._n_read = chain, len(common) if len(chain) > len(common) else 0
            if any(chain[:i] not in self._known for i in range(1, len(chain) + 1)):
                self._feed()
                return
        self.scores = [self._sum(option) for option in self.options]
        self.finish = "stop"

    def _feed(self) -> None:
        self.last, *self.draft = self._chain[self._n_read :]

    def _sum(self, option: Ids) -> float:
        parts = [self._known[option[:i]][token] for i, token in enumerate(option)]
        return math.fsum([*parts, self._known[option][-1]] if self.ends else parts)

    def _out(self, phase: Phase) -> StepOut:
        return StepOut(phase, len(self.prompt), len(self.prompt), finish=self.finish)


def chains(options: Several[Ids], has_ends: bool) -> list[Ids]:
    """What has to be read: each beginning that a token (or an end) hangs from, but not those that a longer one begins
    with; the beginning of all comes first."""
    wanted = {option if has_ends else option[:-1] for option in options} - {()}
    longest = [chain for chain in wanted if not any(len(o) > len(chain) and o[: len(chain)] == chain for o in wanted)]
    common = beginning(options)
    return [*([common] if common in {o[: len(common)] for o in wanted} - {()} else []), *sorted(longest)]


def beginning(options: Several[Ids]) -> Ids:
    """The tokens that all options begin with."""
    first, last = min(options), max(options)
    n = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:n]


def ln_whole(row: NDArray[np.float32]) -> float:
    """ln of what the exponents of a row of raw logits sum to. exp in float32, which is 20 times faster over a
    vocabulary and right to 1e-7; summed in float64."""
    most = row.max()
    return float(most) + math.log(float(np.exp(row - most).sum(dtype=np.float64)))


def ln_p(row: NDArray[np.float32], tokens: Iterable[int], whole: float | None = None) -> float:
    """ln of the probability that one of `tokens` comes next, by raw logits and their ln_whole()."""
    logits = [float(row[token]) for token in tokens]
    top = max(logits)
    mine = top + math.log(math.fsum(math.exp(x - top) for x in logits))
    return mine - (ln_whole(row) if whole is None else whole)


def likeliest(logits: NDArray[np.float32], top: int) -> list[tuple[int, float]]:
    """The `top` likeliest tokens with ln(probability), in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max()
    wide -= np.log(np.exp(wide).sum())
    n = min(top, len(wide))
    found = np.argpartition(-wide, n - 1)[:n] if n < len(wide) else np.arange(len(wide))
    found = found[np.lexsort((found, -wide[found]))]
    return [(int(i), float(wide[i])) for i in found]
