"""One generation inside the worker: ids in, pieces of text out. Not here: threads, sockets, which request is next.

The engine speaks token ids; the text side is here: UTF-8 held until whole, stop strings, logprobs, timings.
"""

import math
import threading
import time
from collections.abc import Callable
from typing import Any, Literal, Protocol

from appliance.frames import SMALLEST_LOGPROB, done_frame, error_value
from appliance.outbox import Outbox
from appliance.request import Done, FinishReason, GenerateRequest, TokenLogprob
from appliance.wire import Frame
from engine.errors import ColibriError, ContextLengthExceeded, ModelFileChanged
from engine.tokenizer.stream import TextStream
from engine.tokenizer.vocab import Vocab

PREFILL_EVERY_S = 0.1


class EngineLike(Protocol):
    """What a session needs of engine.generate.Engine (a process that imports this file must not need numba)."""

    info: Any

    def open(self, ids: list[int], sampling: Any, n_predict: int, eog_ids: frozenset[int], n_logprobs: int) -> Any: ...
    def step(self, seq: Any) -> Any: ...
    def cancel(self) -> None: ...
    def close(self, seq: Any) -> None: ...
    def beat(self) -> int: ...
    def shutdown(self) -> None: ...


class Session:
    """Runs one request to its end on the engine thread; the main thread may `cancel` it and `ack` pieces.

    `phase`, `n_done` and `n_total` may be read by anyone at any time, for the beat.
    """

    def __init__(self, request: GenerateRequest, vocab: Vocab, post: Callable[[Frame], None]) -> None:
        self.request = request
        self.outbox = Outbox(post, request.id)
        self.cancelled = threading.Event()
        self.end_of_engine: ColibriError | None = None
        self.phase: Literal["prefill", "decode"] = "prefill"
        self._leaving = threading.Lock()
        self._ended = False
        self.n_done, self.n_total = 0, len(request.prompt_ids)
        self._vocab = vocab
        self._post = post
        self._text: TextStream
        self._pending: list[tuple[int, list[TokenLogprob]]] = []
        self._n_generated = 0
        self._drafted = 0, 0
        self._disk: dict[str, float] = {}
        self._clock = _Clock()

    def run(self, engine: EngineLike) -> None:
        """Generate and send everything, the last frame included. A ColibriError ends this request only, but for
        `end_of_engine`, after which no other one would fare better; any other exception passes: the engine cannot be
        trusted after it, and the process's end tells all its requests."""
        try:
            last = self._generate(engine)
        except ColibriError as error:
            self.end_of_engine = error if isinstance(error, ModelFileChanged) else None
            last = {"type": "error", "id": self.request.id, "error": error_value(error)}
        self.outbox.flush()
        self._post(last)

    def interrupt(self, engine: EngineLike) -> None:
        """Make a cancelled session's step return. Repeat it until the session has ended: one that comes before the
        sequence is open is forgotten by the engine. The lock keeps it from hitting the session after this one."""
        with self._leaving:
            if self.cancelled.is_set() and not self._ended:
                engine.cancel()

    def _generate(self, engine: EngineLike) -> Frame:
        request = self.request
        room = engine.info.n_ctx - len(request.prompt_ids)
        if room < 1:
            raise ContextLengthExceeded(
                f"the prompt has {len(request.prompt_ids)} tokens, the context {engine.info.n_ctx} and one is needed "
                "for the answer; shorten the prompt or start with a larger ctx_size",
                n_prompt_tokens=len(request.prompt_ids),
                n_ctx=engine.info.n_ctx,
            )
        self._text = TextStream(self._vocab, stop=request.stop, skip_special=request.skip_special,
                                after=request.prompt_ids[-1] if request.prompt_ids else None,
                                shown=request.shown)  # fmt: skip
        n_predict = room if request.max_tokens is None else min(request.max_tokens, room)
        if n_predict < 1:
            return self._done("length", None, 0, request.sampling.seed)
        eog_ids: frozenset[int] = frozenset() if request.ignore_eos else frozenset(self._vocab.eog_ids)
        spent = getattr(engine, "spent", None)
        before = spent() if spent else None
        seq = engine.open(request.prompt_ids, request.sampling, n_predict, eog_ids, request.n_logprobs)
        try:
            finish = self._steps(engine, seq, eog_ids)
            n_cached, seed = getattr(seq, "n_cached", 0), seq.seed
            self._drafted = getattr(seq, "n_drafted", 0), getattr(seq, "n_accepted", 0)
        finally:
            with self._leaving:
                self._ended = True
            engine.close(seq)
        if spent and (used := spent().since(before)).read_bytes:
            self._disk = {"disk_ms": used.disk_ns / 1e6, "disk_bytes": used.read_bytes}
        if finish is None:
            return {"type": "cancelled", "id": request.id, "phase": self.phase, "n_generated": self._n_generated}
        return self._done(finish, self._text.stopped, n_cached, seed)

    def _steps(self, engine: EngineLike, seq: Any, eog_ids: frozenset[int]) -> FinishReason | None:
        """Step until the end; None when cancelled."""
        self._tell_prefill(getattr(seq, "n_cached", 0), seq, force=True)
        while not self.cancelled.is_set():
            out = engine.step(seq)
            if out.cancelled:
                assert self.cancelled.is_set(), "a step was cancelled that nobody wanted cancelled"
                break
            if out.phase == "prefill":
                self._tell_prefill(out.done, seq, force=out.done == out.total)
            if out.token is None:
                if out.finish is not None:
                    return self._end(out.finish)
                continue
            self.phase = "decode"
            for one in (out, *out.more):
                self._clock.token()
                self._n_generated += 1
                self.n_done, self.n_total = self._n_generated, seq.n_predict
                if one.token not in eog_ids:
                    self._take(one)
                    if self._text.stopped is not None:
                        return "stop"
            if out.finish is not None:
                return self._end(out.finish)
        return None

    def _tell_prefill(self, done: int, seq: Any, *, force: bool) -> None:
        self.n_done = done
        if self._clock.prefill_is_due() or force:
            self._post(
                {
                    "type": "prefill",
                    "id": self.request.id,
                    "done": done,
                    "total": len(self.request.prompt_ids),
                    "cached": getattr(seq, "n_cached", 0),
                    "ms": self._clock.since_start_ms(),
                }
            )

    def _take(self, out: Any) -> None:
        """One more token: send what it settles."""
        text = self._text.push(out.token)
        self._pending.append((out.token, [self._logprob(out)] if self.request.n_logprobs else []))
        if self._text.stopped is not None:
            self._send(text, self._before_stop(text))
        elif text or self._vocab_is_silent(out.token):
            self._send(text, len(self._pending))

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
        if self._drafted[0]:
            timings |= {"draft_n": self._drafted[0], "draft_n_accepted": self._drafted[1]}
        timings |= self._disk
        return done_frame(self.request.id, Done(finish, stop, n_prompt, n_cached, self._n_generated, timings, seed))


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
