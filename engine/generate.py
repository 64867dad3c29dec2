"""The engine: one loaded model and the sequences it continues, a step at a time, in token ids. Not here: text, queues.

    seq = engine.open(ids, sampling, n_predict, eog_ids)
    while (out := engine.step(seq)).finish is None and not out.cancelled: ...
    engine.close(seq)

A step is schedule (fill the step block), run (replay the program), settle (count positions, read the sampler). It reads
one chunk of the prompt or makes one token. Every number depends on the sequence's ids alone.
"""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from engine.cache.kv import KvCache, KvSequence
from engine.errors import ContextLengthExceeded, EngineFailed, InvalidParameter
from engine.kernels import step
from engine.kernels.program import Buffer, Recorded
from engine.kernels.team import Team
from engine.kernels.timing import OpTime
from engine.sampling import SamplerSlot, Sampling

MAX_OUT = 16  # rows of logits in one step
Phase = Literal["prefill", "decode"]
Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Facts of a loaded engine; sizes in bytes, `n_ctx` in positions, `isa` with its reason."""

    name: str
    architecture: str
    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    n_layers: int
    n_params: int
    file_bytes: int
    type_k: str
    type_v: str
    load_mode: str
    threads: int
    threads_batch: int
    batch_size: int
    ubatch_size: int
    n_parallel: int
    isa: str
    isa_reason: str
    cpu: str
    weights_bytes: int
    kv_bytes: int
    model_digest: str
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Sequence:
    """One text being continued. `seed` is the one in use, also when none was given."""

    prompt: NDArray[np.int64]
    kv: KvSequence
    sampler: SamplerSlot
    n_predict: int
    eog_ids: frozenset[int]
    seed: int
    n_generated: int = 0
    last: int = -1
    finish: Finish | None = None


@dataclass(frozen=True, slots=True)
class StepOut:
    """What a step did: `done` of `total` prompt tokens are read; `token` was made, with ln(probability) and rivals."""

    phase: Phase
    done: int
    total: int
    token: int | None = None
    logprob: float | None = None
    top: list[tuple[int, float]] = field(default_factory=list)
    finish: Finish | None = None
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Machinery:
    """What `load` built: the team, the recorded program, the cache, the logits and whatever they point into."""

    team: Team
    program: Recorded
    kv: KvCache
    logits: Buffer
    ld_logits: int
    keep: tuple[Any, ...]
    close: Callable[[], None]


class Engine:
    """Made by `engine.load.load_engine`. One thread calls `open`, `step` and `close`; any may call `cancel`, `beat`."""

    def __init__(self, info: EngineInfo, machinery: Machinery) -> None:
        self.info = info
        self._m = machinery
        self._words = machinery.team.words
        n = info.ubatch_size
        self._tokens, self._positions, self._pages = (np.zeros(n, np.int64) for _ in range(3))
        self._out_rows, self._samplers = np.zeros(MAX_OUT, np.int64), np.zeros(MAX_OUT, np.int64)
        for word, array in (
            (step.TOKENS, self._tokens), (step.POSITIONS, self._positions), (step.PAGES, self._pages),
            (step.OUT_ROWS, self._out_rows), (step.SAMPLERS, self._samplers),
        ):  # fmt: skip
            self._words[word // 8] = array.ctypes.data

    # --- sequences ---

    def open(
        self, ids: Ids[int], sampling: Sampling, n_predict: int, eog_ids: frozenset[int] = frozenset(),
        n_logprobs: int = 0,
    ) -> Sequence:  # fmt: skip
        """A sequence that will continue `ids` by up to n_predict tokens; n_logprobs > 0 reports so many rivals of each.

        Raises ContextLengthExceeded when the prompt leaves no room for one token, InvalidParameter for bad ids.
        """
        prompt = self._checked(ids)
        if len(prompt) >= self.info.n_ctx:
            raise ContextLengthExceeded(
                f"the prompt has {len(prompt)} tokens and the context holds {self.info.n_ctx}; no room is left for an "
                "answer: shorten the prompt or start with a larger --ctx-size",
                n_prompt_tokens=len(prompt), n_ctx=self.info.n_ctx,
            )  # fmt: skip
        if n_predict < 1:
            raise InvalidParameter(f"n_predict is {n_predict}; at least 1 token can be asked for", param="n_predict")
        sampler = SamplerSlot(sampling, self.info.n_vocab, ids, n_logprobs or -1)
        kv = self._m.kv.open()
        self._words[step.CANCEL // 8] = 0
        room = self.info.n_ctx - len(prompt)
        return Sequence(prompt, kv, sampler, min(n_predict, room), eog_ids, sampler.seed)

    def close(self, seq: Sequence) -> None:
        """Give the sequence's pages back; closing twice does nothing."""
        seq.kv.close()

    def step(self, seq: Sequence) -> StepOut:
        """Read the next chunk of the prompt, or make the next token; blocks with the GIL released."""
        assert seq.finish is None, "the sequence has ended"
        total, read = len(seq.prompt), min(seq.kv.length, len(seq.prompt))
        if read < total:
            ids = seq.prompt[read : read + min(self.info.ubatch_size, self.info.batch_size)]
            phase: Phase = "prefill"
        else:
            ids, phase = np.array([seq.last], np.int64), "decode"
        done = min(read + len(ids), total)
        out = [(len(ids) - 1, seq.sampler.address)] if done == total else []
        if not self._run(seq.kv, ids, out):
            return StepOut(phase, read, total, cancelled=True)
        return self._settle(seq, phase, done, total) if out else StepOut(phase, done, total)

    def _settle(self, seq: Sequence, phase: Phase, done: int, total: int) -> StepOut:
        drawn = seq.sampler.result()
        seq.last = drawn.token
        seq.sampler.accept(drawn.token)
        seq.n_generated += 1
        if drawn.token in seq.eog_ids:
            seq.finish = "stop"
        elif seq.n_generated >= seq.n_predict:
            seq.finish = "length"
        return StepOut(phase, done, total, drawn.token, drawn.logprob, drawn.top, seq.finish)

    def _run(self, kv: KvSequence, ids: NDArray[np.int64], out: list[tuple[int, int]]) -> bool:
        """One replay over `ids` at the sequence's end; `out` lists (row, sampler). False: cancelled, none counted."""
        n = len(ids)
        kv.reserve(n)
        self._tokens[:n] = ids
        self._positions[:n] = np.arange(kv.length, kv.length + n)
        self._pages[:n] = kv.address
        for i, (row, sampler) in enumerate(out):
            self._out_rows[i], self._samplers[i] = row, sampler
        self._words[step.N_ROWS // 8], self._words[step.N_OUT // 8] = n, len(out)
        self._words[step.ERROR // 8] = 0
        threads = self.info.threads if n <= MAX_OUT else self.info.threads_batch
        if not self._m.team.run(self._m.program, threads):
            if self._words[step.ERROR // 8]:
                raise EngineFailed("the model computed numbers that are no numbers (NaN); its file may be damaged")
            return False
        kv.advance(n)
        return True

    # --- from other threads ---

    def cancel(self) -> None:
        """Make the running step, or the next one, return `cancelled` within one layer."""
        self._m.team.cancel()

    def beat(self) -> int:
        """Layers computed since the start: a number that stands still only when nothing is being computed."""
        return int(self._words[step.LAYER // 8])

    # --- for measuring ---

    def start_timing(self) -> None:
        """Take the time of every op of the steps from now on."""
        self._m.team.start_timing()

    def pause_timing(self, is_paused: bool) -> None:
        """Leave the next steps out, or in again."""
        self._m.team.is_timed = not is_paused

    def stop_timing(self) -> list[OpTime]:
        """What they took, op by op in the order of the program."""
        return self._m.team.stop_timing()

    def logits(self, ids: Ids[int], top: int) -> list[list[tuple[int, float]]]:
        """Teacher-forced: for each of `ids` the `top` likeliest next tokens after it with their ln(probability)."""
        return [_likeliest(row, top) for row in self.logit_rows(ids)]

    def logit_rows(self, ids: Ids[int]) -> Iterator[NDArray[np.float32]]:
        """Teacher-forced raw logits, one float32 (n_vocab,) for each of `ids`."""
        prompt = self._checked(ids)
        if len(prompt) > self.info.n_ctx:
            raise ContextLengthExceeded(
                f"{len(prompt)} tokens were given, the context holds {self.info.n_ctx}; start with a larger --ctx-size"
            )
        chunk = min(self.info.ubatch_size, MAX_OUT)
        kv = self._m.kv.open()
        try:
            for i in range(0, len(prompt), chunk):
                part = prompt[i : i + chunk]
                self._must(self._run(kv, part, [(row, 0) for row in range(len(part))]))
                yield from self._logits(len(part))
        finally:
            kv.close()

    def last_logits(self, ids: Ids[int]) -> NDArray[np.float32]:
        """Raw logits after the whole of `ids`, read in chunks of ubatch_size as a prompt is."""
        prompt, kv = self._checked(ids), self._m.kv.open()
        try:
            for i in range(0, len(prompt), self.info.ubatch_size):
                part = prompt[i : i + self.info.ubatch_size]
                self._must(self._run(kv, part, [(len(part) - 1, 0)]))
            return self._logits(1).reshape(-1)
        finally:
            kv.close()

    def _must(self, finished: bool) -> None:
        if not finished:
            self._words[step.CANCEL // 8] = 0
            raise EngineFailed("the measurement was cancelled")

    def _logits(self, n: int) -> NDArray[np.float32]:
        rows = self._m.logits.view(np.float32).reshape(-1, self._m.ld_logits)
        return np.array(rows[:n, : self.info.n_vocab], np.float32)

    def _checked(self, ids: Ids[int]) -> NDArray[np.int64]:
        if len(ids) == 0:
            raise InvalidParameter("the prompt has no tokens; give at least one", param="prompt")
        prompt = np.asarray(ids, np.int64)
        low, high = int(prompt.min()), int(prompt.max())
        if low < 0 or high >= self.info.n_vocab:
            raise InvalidParameter(
                f"token id {low if low < 0 else high} is outside the vocabulary of 0 to {self.info.n_vocab - 1}",
                param="prompt",
            )
        return prompt

    def shutdown(self) -> None:
        """End the threads and give the memory back."""
        self._m.team.stop()
        self._m.close()


def _likeliest(logits: NDArray[np.float32], top: int) -> list[tuple[int, float]]:
    wide = logits.astype(np.float64)
    wide -= wide.max()
    wide -= np.log(np.exp(wide).sum())
    n = min(top, len(wide))
    found = np.argpartition(-wide, n - 1)[:n] if n < len(wide) else np.arange(len(wide))
    found = found[np.lexsort((found, -wide[found]))]
    return [(int(i), float(wide[i])) for i in found]
