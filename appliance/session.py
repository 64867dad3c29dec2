"""One generation inside the worker: ids in, pieces of text out. Not here: its steps and its company (company.py).

The engine speaks token ids; the text side is here: UTF-8 held until whole, stop strings, logprobs, timings.
"""

import math
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Protocol

from appliance.frames import SMALLEST_LOGPROB, done_frame, error_value
from appliance.outbox import Outbox
from appliance.request import Done, FinishReason, GenerateRequest, TokenLogprob
from appliance.wire import Frame
from engine.errors import ColibriError, ContextLengthExceeded
from engine.loops import Loop, LoopWatch
from engine.tokenizer.stream import TextStream
from engine.tokenizer.vocab import Vocab

PREFILL_EVERY_S = 0.1


class EngineLike(Protocol):
    """What a session needs of engine.generate.Engine (a process that imports this file must not need numba)."""

    info: Any

    def open(self, ids: list[int], sampling: Any, n_predict: int, eog_ids: frozenset[int], n_logprobs: int) -> Any: ...
    def score(
        self, ids: list[int], options: tuple[tuple[int, ...], ...], ends: frozenset[int], is_relative: bool
    ) -> Any: ...
    def step_many(self, sequences: list[Any]) -> list[Any]: ...
    def embed(self, ids: list[int], is_unwanted: Callable[[], bool]) -> Any: ...
    def cancel(self) -> None: ...
    def close(self, seq: Any) -> None: ...
    def beat(self) -> int: ...
    def shutdown(self) -> None: ...


class Session:
    """One request on the engine thread, from `begin` over what each step brings it (`take`) to its last frame, which it
    sends itself; the main thread may set `cancelled` and `ack` pieces.

    `phase`, `n_done` and `n_total` may be read by anyone at any time, for the beat.
    """

    def __init__(self, request: GenerateRequest, vocab: Vocab, post: Callable[[Frame], None]) -> None:
        self.request = request
        self.outbox = Outbox(post, request.id)
        self.cancelled = threading.Event()
        self.sequence: Any = None
        self.phase: Literal["prefill", "decode"] = "prefill"
        self.n_done, self.n_total = 0, len(request.prompt_ids)
        self._vocab = vocab
        self._post = post
        self._engine: EngineLike
        self._text: TextStream
        self._eog_ids: frozenset[int] = frozenset() if request.ignore_eos else frozenset(vocab.eog_ids)
        self._pending: list[tuple[int, list[TokenLogprob]]] = []
        self._n_generated = 0
        self._spent_before: Any = None
        self._clock = _Clock()
        self._loop: Loop | None = None
        # Who wants no end is measuring, and takes whatever comes.
        self._watch = None if request.ignore_eos else LoopWatch()

    def begin(self, engine: EngineLike) -> bool:
        """Open the sequence; False when that was the end of the request already."""
        self._engine = engine
        try:
            if self.request.wants_embedding:
                self._embed(engine)
                return False
            n_predict = self._room(engine.info.n_ctx)
            if n_predict < 1:
                self._say(self._done("length", None, 0, self.request.sampling.seed))
                return False
            if (spent := getattr(engine, "spent", None)) is not None:
                self._spent_before = spent()
            request = self.request
            if request.options:
                ends = self._eog_ids if request.weighs_end else frozenset()
                self.sequence = engine.score(request.prompt_ids, request.options, ends, request.is_relative)
            else:
                self.sequence = engine.open(
                    request.prompt_ids, request.sampling, n_predict, self._eog_ids, request.n_logprobs
                )
        except ColibriError as error:
            self.fail(error)
            return False
        self._tell_prefill(self._n_cached(), force=True)
        return True

    def _embed(self, engine: EngineLike) -> None:
        """The vector of the prompt, in one go: a cancel is seen between two chunks of it."""
        n, vector = self.n_total, engine.embed(self.request.prompt_ids, self.cancelled.is_set)
        if vector is None:
            self.leave()
            return
        self._clock.token()
        # Not "stop": that would tell whoever learns how long answers are that they have no tokens.
        done = Done("length", None, n, 0, 0, self._clock.timings(n, 0, 0), None)
        self._say(done_frame(self.request.id, replace(done, embedding=b64encode(vector.tobytes()).decode())))

    def take(self, out: Any) -> bool:
        """What a step brought; False when the answer has ended with it. A ColibriError ends this request only."""
        try:
            finish = self._finish_after(out)
        except ColibriError as error:
            self.fail(error)
            return False
        if finish is None:
            return True
        seq = self.sequence
        self._close()
        self._say(self._done(finish, self._text.stopped, self._n_cached(), seq.seed))
        return False

    def fail(self, error: ColibriError) -> None:
        """End it with an error."""
        self._close()
        self._say({"type": "error", "id": self.request.id, "error": error_value(error)})

    def leave(self) -> None:
        """End it since nobody wants it any more."""
        self._close()
        self._say(
            {"type": "cancelled", "id": self.request.id, "phase": self.phase, "n_generated": self._n_generated}
        )

    def _close(self) -> None:
        if self.sequence is not None:
            self._engine.close(self.sequence)

    def _say(self, last: Frame) -> None:
        self.outbox.flush()
        self._post(last)

    def _room(self, n_ctx: int) -> int:
        """How many tokens the answer may have."""
        request = self.request
        room = n_ctx - len(request.prompt_ids)
        if room < 1:
            raise ContextLengthExceeded(
                f"the prompt has {len(request.prompt_ids)} tokens, the context {n_ctx} and one is needed "
                "for the answer; shorten the prompt or start with a larger ctx_size",
                n_prompt_tokens=len(request.prompt_ids),
                n_ctx=n_ctx,
            )
        self._text = TextStream(self._vocab, stop=request.stop, skip_special=request.skip_special,
                                after=request.prompt_ids[-1] if request.prompt_ids else None,
                                shown=request.shown)  # fmt: skip
        return room if request.max_tokens is None else min(request.max_tokens, room)

    def _finish_after(self, out: Any) -> FinishReason | None:
        """Why the answer has ended, None while it goes on."""
        if out.phase == "prefill":
            self._tell_prefill(out.done, force=out.done == out.total)
        if out.token is None and out.finish is None:
            return None
        if (failure := getattr(self.sequence, "failure", None)) is not None:
            raise failure
        if out.token is None:
            self._clock.token()
            if self.request.options:
                self._say_likeliest()
            return self._end(out.finish)
        self.phase = "decode"
        for one in (out, *out.more):
            self._clock.token()
            self._n_generated += 1
            self.n_done, self.n_total = self._n_generated, self.sequence.n_predict
            if one.token not in self._eog_ids:
                self._take(one)
                if self._text.stopped is not None:
                    return "stop"
                if self._watch is not None and (loop := self._watch.push(one.token)) is not None:
                    self._loop = loop
                    return self._end("length")
        return None if out.finish is None else self._end(out.finish)

    def _tell_prefill(self, done: int, *, force: bool) -> None:
        self.n_done = done = min(done, len(self.request.prompt_ids))
        if self._clock.prefill_is_due() or force:
            self._post(
                {
                    "type": "prefill",
                    "id": self.request.id,
                    "done": done,
                    "total": len(self.request.prompt_ids),
                    "cached": self._n_cached(),
                    "ms": self._clock.since_start_ms(),
                }
            )

    def _n_cached(self) -> int:
        """Ids of the prompt that came with others' pages, which may hold what options begin with as well."""
        return min(getattr(self.sequence, "n_cached", 0), len(self.request.prompt_ids))

    def _take(self, out: Any) -> None:
        """One more token: send what it settles."""
        text = self._text.push(out.token)
        self._pending.append((out.token, [self._logprob(out)] if self.request.n_logprobs else []))
        if self._text.stopped is not None:
            self._send(text, self._before_stop(text))
        elif text or self._vocab_is_silent(out.token):
            self._send(text, len(self._pending))

    def _say_likeliest(self) -> None:
        """The text of the option with the highest score, the first of equal ones; no token of it was generated."""
        scores = self.sequence.scores
        best = self.request.options[scores.index(max(scores))]
        self._send("".join(self._text.push(token) for token in best), 0)

    def _end(self, finish: FinishReason) -> FinishReason:
        """The engine is done: let go of the text that was held back, as half a character or a possible stop."""
        self._send(self._text.finish(), len(self._pending))
        return finish

    def _send(self, text: str, n_tokens: int) -> None:
        taken, self._pending = self._pending[:n_tokens], []
        if text or taken:
            self.outbox.push(text, [token for token, _ in taken], [lp for _, lps in taken for lp in lps])

    def _before_stop(self, text: str) -> int:
        """How many pending tokens the text before the stop string is made of; the others must not leak it."""
        left = len(text.encode())
        for n, (token, _) in enumerate(self._pending):
            if left <= 0:
                return n
            left -= len(self._vocab.bytes_of(token))
        return len(self._pending)

    def _vocab_is_silent(self, token: int) -> bool:
        """A token that never shows: nothing to wait for, unless others wait already."""
        return len(self._pending) == 1 and self._text.skips(token)

    def _logprob(self, out: Any) -> TokenLogprob:
        def entry(token: int, logprob: float, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
            value = logprob if math.isfinite(logprob) else SMALLEST_LOGPROB
            return TokenLogprob(token, self._vocab.bytes_of(token), max(value, SMALLEST_LOGPROB), top)

        # The engine's two figures for one token differ in the last float bits; a client compares them.
        own = next((logprob for token, logprob in out.top if token == out.token), out.logprob)
        return entry(out.token, own, tuple(entry(token, logprob) for token, logprob in out.top))

    def _done(self, finish: FinishReason, stop: str | None, n_cached: int, seed: int | None) -> Frame:
        n_prompt = len(self.request.prompt_ids)
        timings = self._clock.timings(n_prompt, n_cached, self._n_generated)
        seq = self.sequence
        if n_drafted := getattr(seq, "n_drafted", 0):
            timings |= {"draft_n": n_drafted, "draft_n_accepted": seq.n_accepted}
        if self._spent_before is not None:
            used = self._engine.spent().since(self._spent_before)  # type: ignore[attr-defined]
            if used.read_bytes:  # of whoever stepped along, too
                timings |= {"disk_ms": used.disk_ns / 1e6, "disk_bytes": used.read_bytes}
        done = Done(finish, stop, n_prompt, n_cached, self._n_generated, timings, seed)
        if self._loop is not None:
            done = replace(done, loop=self._loop.json())
        if self.request.options and seq is not None:
            done = replace(done, scores=tuple(seq.scores))
        return done_frame(self.request.id, done)


class _Clock:
    """When the work began, when the first and the last token came."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._first: float | None = None
        self._last = self._prefill_told = self._start

    def since_start_ms(self) -> float:
        return (time.perf_counter() - self._start) * 1e3

    def prefill_is_due(self) -> bool:
        now = time.perf_counter()
        if now - self._prefill_told < PREFILL_EVERY_S:
            return False
        self._prefill_told = now
        return True

    def token(self) -> None:
        self._last = time.perf_counter()
        if self._first is None:
            self._first = self._last

    def timings(self, n_prompt: int, n_cached: int, n_generated: int) -> dict[str, float]:
        """llama-server's names and borders: the prompt's time ends with the first token, the rest is prediction."""
        first = self._first if self._first is not None else self._last
        prompt_n = n_prompt - n_cached
        timings: dict[str, float] = {"cache_n": n_cached}
        parts = ("prompt", prompt_n, first - self._start), ("predicted", n_generated, self._last - first)
        for name, n, seconds in parts:
            timings[f"{name}_n"] = n
            timings[f"{name}_ms"] = seconds * 1e3
            timings[f"{name}_per_token_ms"] = seconds * 1e3 / n if n else 0.0
            timings[f"{name}_per_second"] = n / seconds if seconds > 0 else 0.0
        return timings
