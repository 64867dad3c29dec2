"""The engine: one loaded model and the sequences it continues, a step at a time, in token ids. Not here: text, queues.

    seq = engine.open(ids, sampling, n_predict, eog_ids)
    while (out := engine.step(seq)).finish is None and not out.cancelled: ...
    engine.close(seq)

A step is schedule (fill the row table), run (replay the program), settle (count positions, read the samplers). It makes
a token for each sequence that has read its prompt and reads prompts with the rows that are left; `step(seq)` is a step
of one sequence. Every number depends on its sequence's ids alone, not on what else the step carries.
"""

import threading
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Several
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from engine.cache.kv import KvSequence
from engine.cache.prefix import common
from engine.errors import ContextLengthExceeded, EngineFailed, InvalidParameter
from engine.info import EngineInfo
from engine.kernels import step
from engine.kernels.timing import OpTime
from engine.machinery import Machinery
from engine.meter import PassTimes
from engine.prompt import checked
from engine.rows import RowTable
from engine.sampling import Binds, SamplerSlot, Sampling
from engine.score import Scored, beginning, likeliest
from engine.sequence import Part, Sequence, StepOut, ready, share, texts
from engine.spent import Spent, Tally
from engine.weights.experts import ExpertCache

BESIDE = 64  # rows of prompts in a step that makes tokens, too
FEW = 16  # rows up to which a step reads weights rather than computes: `threads`, beyond it `threads_batch`


class NotFinite(EngineFailed):
    """The logits of `sequences` were no numbers; the step counts for nobody, the others may go on without them."""

    exit_code = 3  # of a bad model file
    def __init__(self, sequences: list[Sequence]) -> None:
        super().__init__("the model computed numbers that are no numbers (NaN); its file may be damaged")
        self.sequences = sequences


class Engine:
    """Made by `engine.load.load_engine`. One thread calls `open`, `step` and `close`; any may call `cancel`, `beat`."""

    def __init__(self, info: EngineInfo, machinery: Machinery) -> None:
        self.info = info
        self._m = machinery
        self._words = machinery.team.words
        self._rows = RowTable(self._words, info.ubatch_size, machinery.n_out, not info.is_encoder)
        self._budget = min(info.ubatch_size, info.batch_size)
        self._turn = 0
        self._times = PassTimes()
        self._tally = Tally()
        self._running: list[Sequence] = []  # in the order of opening
        self.grammars: Binds | None = None  # set by who has the model's text; without it none can be kept to

    # --- sequences ---

    def open(
        self, ids: Several[int], sampling: Sampling, n_predict: int, eog_ids: frozenset[int] = frozenset(),
        n_logprobs: int = 0, like: Sequence | None = None,
    ) -> Sequence:  # fmt: skip
        """A sequence that will continue `ids` by up to n_predict tokens; n_logprobs > 0 reports so many rivals of each.

        What `like` has read of a prompt that begins the same is not read again: their pages are shared. Where prefixes
        are kept, that holds for every text, running or ended.
        Raises ContextLengthExceeded when the prompt leaves no room for one token, InvalidParameter for bad ids, KvFull
        when n_parallel sequences are open.
        """
        prompt = checked(ids, self.info)
        if len(prompt) >= self.info.n_ctx:
            raise ContextLengthExceeded(
                f"the prompt has {len(prompt)} tokens and the context holds {self.info.n_ctx}; no room is left for an "
                "answer: shorten the prompt or start with a larger --ctx-size",
                n_prompt_tokens=len(prompt), n_ctx=self.info.n_ctx,
            )  # fmt: skip
        if n_predict < 1:
            raise InvalidParameter(f"n_predict is {n_predict}; at least 1 token can be asked for", param="n_predict")
        sampler = SamplerSlot(sampling, self.info.n_vocab, ids, n_logprobs or -1, self.grammars)
        kv = self._place(prompt, like)
        room = self.info.n_ctx - len(prompt)
        seq = Sequence(prompt, kv, sampler, min(n_predict, room), eog_ids, sampler.seed, n_cached=kv.length)
        if self._m.speculate is not None and not sampling.grammar:  # guesses would need masks of their own
            seq.speculator = self._m.speculate(prompt.tolist(), replace(sampling, seed=seq.seed), self._times)
        seq.begin()
        if self._m.prefixes is not None:
            self._running.append(seq)
        return seq

    def score(
        self, ids: Several[int], options: Several[Several[int]], ends: frozenset[int] = frozenset(),
        is_relative: bool = False,
    ) -> Scored:  # fmt: skip
        """A sequence that finds how likely each of `options` is behind `ids`, and ends; see engine/score.py. Where it
        `is_relative` their common beginning counts for nothing and is read with the text, which is quicker.

        ContextLengthExceeded when an option finds no room, InvalidParameter for bad ids or an empty option, KvFull.
        """
        prompt = checked(ids, self.info)
        given = tuple(tuple(checked(option, self.info).tolist()) for option in options)
        if (most := max(map(len, given))) > self.info.ubatch_size:
            raise InvalidParameter(
                f"an option has {most} tokens; at most {self.info.ubatch_size} can be weighed (ubatch_size)",
                param="options",
            )
        longest = len(prompt) + most
        if longest > self.info.n_ctx:
            raise ContextLengthExceeded(
                f"the text and its longest option have {longest} tokens and the context holds {self.info.n_ctx}; "
                "shorten the text or start with a larger --ctx-size",
                n_prompt_tokens=longest, n_ctx=self.info.n_ctx,
            )  # fmt: skip
        if is_relative and (n := len(beginning(given))) and all(len(option) > n for option in given):
            prompt = np.concatenate([prompt, np.array(given[0][:n], np.int64)])
            given = tuple(option[n:] for option in given)
        kv = self._place(prompt)
        slot = SamplerSlot(Sampling(seed=0), self.info.n_vocab, ())
        seq = Scored(prompt, kv, slot, self.info.n_ctx, ends, 0, n_cached=kv.length, options=given, ends=ends)
        if self._m.prefixes is not None:
            self._running.append(seq)
        return seq

    def _place(self, prompt: NDArray[np.int64], like: Sequence | None = None) -> KvSequence:
        """Pages for a text, with what is there already of its beginning."""
        if not self._m.kv.sequences:
            self._words[step.CANCEL // 8] = 0  # meant for a sequence that is gone
        if like is not None:
            kv = like.kv.fork()
            kv.truncate(kv.reusable(common(prompt[:-1], like.prompt[: kv.length])))
            return kv
        prefixes = self._m.prefixes
        return prefixes.open(prompt[:-1], texts(self._running)) if prefixes else self._m.kv.open()

    def again(self, seq: Sequence, ids: Several[int], sampling: Sampling, n_predict: int, keep: int) -> Sequence:
        """What `open` would give, on the pages of `seq`, which is dead then: its first `keep` positions hold what `ids`
        begin with, and are not read again where they have been."""
        prompt = checked(ids, self.info)
        seq.kv.truncate(seq.kv.reusable(min(keep, seq.kv.length, len(prompt) - 1)))
        sampler = SamplerSlot(sampling, self.info.n_vocab, ids)
        room = self.info.n_ctx - len(prompt)
        return Sequence(prompt, seq.kv, sampler, min(n_predict, room), seq.eog_ids, sampler.seed, seq.kv.length)

    def close(self, seq: Sequence) -> None:
        """Give the sequence's pages back, or keep them as a prefix of others; closing twice does nothing."""
        if seq in self._running:
            self._running.remove(seq)
        if self._m.prefixes is not None and seq.is_sound and seq.kv in self._m.kv.sequences:
            self._m.prefixes.keep(seq.kv, seq.ids)
        else:
            seq.kv.close()
        if seq.speculator is not None:
            seq.speculator.close()
        if self._m.stream:
            self._m.stream.rest()

    def step(self, seq: Sequence) -> StepOut:
        """Read the next chunk of the prompt, or make the next token; blocks with the GIL released."""
        return self.step_many([seq])[0]

    def step_many(self, sequences: Several[Sequence]) -> list[StepOut]:
        """One replay for all of `sequences`, in any phase, under one budget of rows; what it brought each of them.

        A cancelled step counts for nobody, nor does one that raises: KvFull, NotFinite, ReadFailed.
        """
        assert sequences and len(set(sequences)) == len(sequences), "each sequence once"
        assert all(s.finish is None for s in sequences), "a sequence has ended"
        n_making = sum(s.phase == "decode" for s in sequences)
        for s in sequences:
            s.guess(n_making)
        try:
            return self._step(sequences)
        except NotFinite as broken:
            if broken.sequences or not any(s.draft for s in sequences):
                for s in broken.sequences or sequences:
                    s.is_sound = False
                raise
            for s in sequences:  # rows of guesses alone, which nobody would have computed without them
                s.draft = []
            return self._step(sequences)

    def _step(self, sequences: Several[Sequence]) -> list[StepOut]:
        began = time.perf_counter()
        prefixes = self._m.prefixes
        going = ready(prefixes, self._running, sequences) if prefixes and len(sequences) > 1 else sequences
        # A stream's pass takes the disk's time whatever it computes; where options are weighed nobody reads along.
        is_patient = bool(self._m.stream) or all(isinstance(s, Scored) for s in going if s.phase == "decode")
        parts = share(going, self._budget, self._rows.max_out, None if is_patient else BESIDE)
        self._rows.clear()
        asked = [self._ask(part) for part in parts]
        if not self._run(parts, asked):
            return [s.waited(cancelled=True) for s in sequences]
        outs = {s: s.waited() for s in sequences}
        for part, samplers in zip(parts, asked, strict=True):
            outs[part.seq] = self._settle(part, samplers)
        if self._m.speculate is not None and all(part.wanted == len(part.ids) for part in parts):
            self._times.took(self._rows.n_rows, time.perf_counter() - began)
        return [outs[s] for s in sequences]

    def _ask(self, part: Part) -> list[SamplerSlot]:
        """The part's rows in the table; the samplers of those whose logits are wanted, if it has any."""
        seq = part.seq
        end = self._rows.add(seq.kv, part.ids) + len(part.ids)
        samplers = seq.samplers(part)
        seq.logits_row, seq.n_logits = self._rows.n_out, 0
        for i in range(part.wanted):
            self._rows.want(end - part.wanted + i, samplers[i].address if samplers else 0)
        return samplers

    def _settle(self, part: Part, samplers: list[SamplerSlot]) -> StepOut:
        seq, n = part.seq, len(part.ids)
        self._turn += 1
        seq.turn = self._turn
        if isinstance(seq, Scored) and part.wanted:
            return seq.scored(part, self._logits(seq.logits_row, part.wanted), seq.phase)
        if not samplers:
            seq.kv.advance(n)
            return seq.waited()
        phase, guesses = seq.phase, part.ids[n - part.wanted + 1 :]
        seq.kv.advance(n - part.wanted + 1)
        made = [seq.take(samplers[0].result(), phase)]
        for guess, sampler in zip(guesses, samplers[1:], strict=True):
            if guess != seq.last or seq.finish:
                break
            seq.kv.advance(1)
            made.append(seq.take(sampler.result(), phase))
        seq.n_logits, seq.draft = len(made), []
        made = [*seq.begun, *made, *seq.leap(phase)]
        seq.begun = []
        self._tally.n_tokens += len(made)
        if seq.speculator is not None:
            seq.speculator.settle([one.token for one in made if one.token is not None], len(guesses))
        return replace(made[0], more=tuple(made[1:]), finish=seq.finish) if len(made) > 1 else made[0]

    def _run(self, parts: Several[Part] = (), asked: Several[list[SamplerSlot]] = ()) -> bool:
        """Replay over the row table; False: cancelled. Nothing is counted here."""
        self._rows.publish()
        threads = self.info.threads if self._rows.n_rows <= FEW else self.info.threads_batch
        if self._replay(threads):
            return True
        if self._words[step.ERROR // 8]:
            if fault := self._m.team.fault(self._m.program):
                raise EngineFailed(fault)
            raise NotFinite([p.seq for p, slots in zip(parts, asked, strict=True) if slots and slots[0].failed])
        self._words[step.CANCEL // 8] = 0
        return False

    def _replay(self, threads: int) -> bool:
        began = time.perf_counter_ns()
        try:
            return self._replay_once(threads)
        finally:
            self._tally.step(self._rows.n_rows, time.perf_counter_ns() - began)

    def _replay_once(self, threads: int) -> bool:
        if not (stream := self._m.stream):
            self._check_file()  # before, since touching a page behind the end of a cut file ends the process
            is_whole = self._m.team.run(self._m.program, threads)
            self._check_file()
            return is_whole
        stream.begin(self._rows.n_rows)
        is_whole = self._m.team.run(self._m.program, threads)
        if (complaint := stream.end(is_whole)) is not None:
            raise complaint
        return is_whole

    def _check_file(self) -> None:
        if self._m.watch and (complaint := self._m.watch.complaint()):
            raise complaint

    def embed(self, ids: Several[int], is_unwanted: Callable[[], bool] = lambda: False) -> NDArray[np.float32] | None:
        """The vector of a text, float32 of length 1; None when it was cancelled, or `is_unwanted` between two steps.
        Raises InvalidParameter for a model that makes no vectors, KvFull when n_parallel sequences are open."""

        def read(kv: KvSequence, some: NDArray[np.int64]) -> bool:
            self._rows.clear()
            self._rows.add(kv, some)
            return not is_unwanted() and self._run()

        prompt = checked(ids, self.info, for_vector=True)
        vector = self._m.embedder.vector(prompt, self._m.kv, self._budget, read)
        if vector is not None and not np.isfinite(vector).all():
            raise NotFinite([])
        return vector

    # --- from other threads ---

    def cancel(self) -> None:
        """Make the running step, or the next one, return `cancelled` within one layer."""
        self._m.team.cancel()
        if self._m.stream:
            self._m.stream.cancel()

    def beat(self) -> int:
        """Layers computed since the start: a number that stands still only when nothing is being computed."""
        return int(self._words[step.LAYER // 8])

    @property
    def experts(self) -> ExpertCache | None:
        """The cache of experts that are read as they are needed; whoever steps may resize it between two steps."""
        return self._m.stream.experts if self._m.stream else None

    def spent(self) -> Spent:
        """What the steps so far have used up."""
        stream = self._m.stream
        ns = int(self._words[step.SAMPLE_NS // 8])
        return self._tally.spent(ns, stream.readers, stream.experts) if stream else self._tally.spent(ns, None)

    def resize_experts(self, share: float) -> int | None:
        """Use this share of the planned cache of experts from now on, between two steps; the bytes in use then, None
        where there is no such cache."""
        cache = self._m.stream.experts if self._m.stream else None
        return cache.resize(round(share * cache.n_bytes)) if cache else None

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

    def logits(self, ids: Several[int], top: int) -> list[list[tuple[int, float]]]:
        """Teacher-forced: for each of `ids` the `top` likeliest next tokens after it with their ln(probability)."""
        return [likeliest(row, top) for row in self.logit_rows(ids)]

    def logit_rows(self, ids: Several[int]) -> Iterator[NDArray[np.float32]]:
        """Teacher-forced raw logits, one float32 (n_vocab,) for each of `ids`."""
        prompt = checked(ids, self.info)
        if len(prompt) > self.info.n_ctx:
            raise ContextLengthExceeded(
                f"{len(prompt)} tokens were given, the context holds {self.info.n_ctx}; start with a larger --ctx-size"
            )
        chunk, kv = min(self.info.ubatch_size, self._rows.max_out), self._m.kv.open()
        try:
            for i in range(0, len(prompt), chunk):
                yield from self._read(kv, prompt[i : i + chunk], chunk)
        finally:
            kv.close()

    def last_logits(self, ids: Several[int]) -> NDArray[np.float32]:
        """Raw logits after the whole of `ids`, read in chunks of ubatch_size as a prompt is."""
        prompt, kv = checked(ids, self.info), self._m.kv.open()
        try:
            for i in range(0, len(prompt), self.info.ubatch_size):
                rows = self._read(kv, prompt[i : i + self.info.ubatch_size], 1)
            return rows.reshape(-1)
        finally:
            kv.close()

    def logits_of(self, seq: Sequence) -> NDArray[np.float32]:
        """Raw logits that the tokens of `seq` were chosen from in the step before, (tokens made, n_vocab); a copy."""
        return self._logits(seq.logits_row, seq.n_logits)

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """The team but its first member, which is whoever steps; the readers of a stream."""
        return (*self._m.team.threads, *(self._m.stream.readers.threads if self._m.stream else ()))

    def _read(self, kv: KvSequence, ids: NDArray[np.int64], most: int) -> NDArray[np.float32]:
        """Read ids; raw logits of at most so many last ones."""
        self._rows.clear()
        first, n = self._rows.add(kv, ids), min(most, len(ids))
        for row in range(first + len(ids) - n, first + len(ids)):
            self._rows.want(row)
        if not self._run():
            raise EngineFailed("the measurement was cancelled")
        kv.advance(len(ids))
        return self._logits(0, n)

    def _logits(self, first: int, n: int) -> NDArray[np.float32]:
        rows = self._m.logits.view(np.float32).reshape(-1, self._m.ld_logits)
        return np.array(rows[first : first + n, : self.info.n_vocab], np.float32)

    def shutdown(self) -> None:
        """End the threads and give the memory back."""
        self._m.team.stop()
        if self._m.stream:
            self._m.stream.close()
        self._m.close()
