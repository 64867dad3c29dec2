"""One text being continued, what a step says about it, and which sequences get how many rows. Not here: computing.

A sequence reads its prompt in chunks, then makes tokens. With guesses in `draft` a step computes a row for each of them
too, and every guess that the sampler would have chosen anyway is a token made: same ids, same bits, fewer passes.
What a grammar forces is made without any computing, and read like a prompt by the next step.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from engine.cache.kv import KvSequence
from engine.cache.prefix import Prefixes, Text, common
from engine.errors import EngineFailed
from engine.sampling import Choice, SamplerSlot
from engine.speculate import Speculator

Phase = Literal["prefill", "decode"]
Finish = Literal["stop", "length"]
WORTH = 64  # prompt tokens that a sequence waits for
BEHIND = 4  # one row of so many is for prompts behind the first


@dataclass(frozen=True, slots=True)
class StepOut:
    """What a step did: `done` of `total` prompt tokens are read; `token` was made, with ln(probability) and rivals.

    `more` holds what right guesses and a grammar made besides. A sequence that got no row in a step has no token and
    the same `done`.
    """

    phase: Phase
    done: int
    total: int
    token: int | None = None
    logprob: float | None = None
    top: list[tuple[int, float]] = field(default_factory=list)
    finish: Finish | None = None
    cancelled: bool = False
    more: tuple["StepOut", ...] = ()


@dataclass(slots=True, eq=False)
class Sequence:
    """One text being continued. `seed` is the one in use, also when none was given; `n_cached` prompt tokens came with
    another sequence's pages; the last step left the logits of its `n_logits` tokens from row `logits_row` on."""

    prompt: NDArray[np.int64]
    kv: KvSequence
    sampler: SamplerSlot
    n_predict: int
    eog_ids: frozenset[int]
    seed: int
    n_cached: int = 0
    n_generated: int = 0
    last: int = -1
    finish: Finish | None = None
    draft: list[int] = field(default_factory=list)
    logits_row: int = 0
    n_logits: int = 0
    turn: int = 0  # rises with every time that a sequence has rows: the least has waited longest
    speculator: Speculator | None = None
    made: list[int] = field(default_factory=list)
    begun: list[StepOut] = field(default_factory=list)  # forced before the first step, which tells of them
    is_sound: bool = True  # its logits were numbers

    @property
    def ids(self) -> NDArray[np.int64]:
        """Prompt and answer."""
        return np.concatenate([self.prompt, np.array(self.made, np.int64)])

    @property
    def unread(self) -> NDArray[np.int64]:
        """What its pages do not hold yet: the rest of the prompt and of what was made."""
        n, total = self.kv.length, len(self.prompt)
        made = np.array(self.made[max(n - total, 0) :], np.int64)
        return np.concatenate([self.prompt[n:], made]) if n < total else made

    @property
    def n_read(self) -> int:
        """Prompt tokens read so far."""
        return min(self.kv.length, len(self.prompt))

    @property
    def phase(self) -> Phase:
        return "prefill" if self.n_read < len(self.prompt) else "decode"

    def guess(self, n_making: int) -> None:
        """Draft what pays in a step of so many sequences that make tokens, where a speculator is there to guess."""
        if self.speculator is not None and self.phase == "decode" and not self.draft:
            self.draft = self.speculator.guess(self.n_predict - self.n_generated - 1, n_making)

    def samplers(self, part: "Part") -> list[SamplerSlot]:
        """One for each row of the part whose logits are wanted: the guesses' follow from the one before."""
        found = [self.sampler.prepared()] if part.wanted else []
        for row in range(len(part.ids) - part.wanted + 1, len(part.ids)):
            found.append(found[-1].after(int(part.ids[row])))
        return found

    @property
    def failure(self) -> EngineFailed | None:
        """Why its answer must not be given, although it has ended: its grammar could not be kept to."""
        return self.sampler.rule.failure if self.sampler.rule else None

    @property
    def n_drafted(self) -> int:
        """Guesses of its speculator that were computed so far."""
        return self.speculator.n_drafted if self.speculator else 0

    @property
    def n_accepted(self) -> int:
        """Those of them that became tokens."""
        return self.speculator.n_accepted if self.speculator else 0

    def waited(self, cancelled: bool = False) -> StepOut:
        """A step that brought this sequence nothing."""
        return StepOut(self.phase, self.n_read, len(self.prompt), cancelled=cancelled)

    def take(self, choice: Choice, phase: Phase) -> StepOut:
        """The next token was chosen."""
        self.last = choice.token
        self.made.append(choice.token)
        self.sampler.accept(choice.token)
        self.n_generated += 1
        if choice.token in self.eog_ids or self.sampler.is_complete:
            self.finish = "stop"
        elif self.n_generated >= self.n_predict:
            self.finish = "length"
        total = len(self.prompt)
        return StepOut(phase, total, total, choice.token, choice.logprob, choice.top, self.finish)

    def begin(self) -> None:
        """Take what the grammar forces before anything is computed, but for a last token, which the first step makes:
        a sequence has not ended before it was ever in a step."""
        while self.sampler.forced > 1 and self.n_generated < self.n_predict - 1 and self.finish is None:
            self.begun.append(self.take(self.sampler.force(), "prefill"))
        self.finish = None

    def leap(self, phase: Phase) -> list[StepOut]:
        """Take what the grammar forces now."""
        outs: list[StepOut] = []
        while self.sampler.forced and self.finish is None:
            outs.append(self.take(self.sampler.force(), phase))
        return outs


@dataclass(slots=True)
class Part:
    """A sequence's rows in a step; the logits of the last `wanted` of them are asked for."""

    seq: Sequence
    ids: NDArray[np.int64]
    wanted: int


def share(sequences: Several[Sequence], rows: int, outs: int, beside: int | None = None) -> list[Part]:
    """At most `rows` rows and `outs` rows of logits for a step, in order of the table.

    Every sequence that makes tokens gets its row, those that waited longest first; then forced tokens that are to be
    read, and guesses; the prompts share what is left (`portions`), at most `beside` rows while others make tokens,
    which wait for each step. One row is kept for a prompt that waits, so that none is starved by answers.
    """
    making = sorted((s for s in sequences if s.phase == "decode"), key=lambda s: s.turn)
    reading = [s for s in sequences if s.phase == "prefill"]
    making = making[: min(rows - (1 if reading and rows > 1 else 0), outs)]
    left = rows - len(making)
    guesses = max(0, min(left - len(reading), outs - len(sequences)))
    parts, outs = [], outs - len(making)
    forced = max(0, left - len(reading)) if beside is None else min(max(0, left - len(reading)), beside)
    for s in making:
        if len(unread := s.unread) > 1:
            n = min(len(unread) - 1, forced)
            is_all = n == len(unread) - 1
            parts.append(Part(s, unread[: n + 1], int(is_all)))
            forced, left, guesses = forced - n, left - n, max(0, min(guesses, left - n - len(reading)))
            outs += not is_all
            continue
        n = min(len(s.draft), guesses, s.n_predict - s.n_generated - 1)
        parts.append(Part(s, np.array([s.last, *s.draft[:n]], np.int64), n + 1))
        guesses, left, outs, forced = guesses - n, left - n, outs - n, max(0, forced - n)
    if making and beside is not None:
        left = min(left, beside)
    rests = [s.unread for s in reading]
    for s, unread, n in zip(reading, rests, portions([len(rest) for rest in rests], left), strict=True):
        ends = n == len(unread)
        if ends and not outs:
            n, ends = n - 1, False
        if n > 0:
            parts.append(Part(s, unread[:n], int(ends)))
            outs -= int(ends)
    return parts


def portions(needs: Several[int], rows: int) -> list[int]:
    """How many of `rows` each prompt gets that needs so many, in the order of coming.

    The first gets three quarters at least, so that somebody ends soon; a quarter goes to those behind it that need
    less, the shortest first, so that a short question does not wait for the whole of a long document.
    """
    got, behind = [0] * len(needs), rows // BEHIND
    shorter = [i for i in range(1, len(needs)) if needs[i] < needs[0]]
    for i in sorted(shorter, key=needs.__getitem__):
        got[i] = min(needs[i], behind)
        behind -= got[i]
    left = rows - sum(got)
    for i, need in enumerate(needs):
        more = min(need - got[i], left)
        got[i] += more
        left -= more
    return got


def texts(sequences: Iterable[Sequence]) -> list[Text]:
    return [Text(s.ids, s.kv) for s in sequences]


def ready(prefixes: Prefixes, running: Several[Sequence], sequences: Several[Sequence]) -> list[Sequence]:
    """Those of `sequences` that may read or make tokens now; `running` are all there are, the oldest first.

    Who has read nothing of its own yet takes over what older ones have of its prompt by now, and waits while an older
    one is still reading a good deal of it: of eight requests with one instruction the first reads it for all.
    """
    going: list[Sequence] = []
    for s in sorted(sequences, key=running.index):
        if s.phase == "prefill" and s.kv.length == s.n_cached:
            if prefixes.extend(s.kv, s.prompt[:-1], texts(going)):
                s.n_cached = s.kv.length
            coming = [common(s.prompt[:-1], r.prompt) for r in going if r.phase == "prefill"]
            if max(coming, default=0) >= s.kv.length + WORTH:
                continue
        going.append(s)
    return [s for s in sequences if s in going]
