"""An engine that does as it is told: for states that a real one cannot be brought to. Not here: any test.

The worker loads it when its spec says so. `options` is the script: the text it writes letter by letter, how long a step
takes, at which step it hangs, dies or raises, what its load does. Everything around it is real.
"""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from appliance.life import WorkerSpec
from appliance.request import GenerateRequest
from engine.errors import BadModelFile, DoesNotFit, EngineFailed
from engine.sampling import Sampling
from engine.tokenizer.vocab import Vocab

LETTERS = "abcdefghijklmnopqrstuvwxyz"
END = len(LETTERS)
MARK = END + 1
OTHERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 \n<>/{}[]\":,_|=#!?"
LAYER_S = 0.005
UNLIKE = 257
"""When a script begins anew it writes another letter so often."""


def vocab() -> Vocab:
    """26 letters, an end token, a control token without text, and whatever else a text may be made of."""
    return Vocab(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": [*LETTERS, "<|im_end|>", "<|mark|>", *OTHERS.replace(" ", "Ġ").replace("\n", "Ċ")],
            "tokenizer.ggml.token_type": [1] * END + [3, 3] + [1] * len(OTHERS),
            "tokenizer.ggml.eos_token_id": END,
        }
    )


def ids(text: str) -> list[int]:
    """`text` as token ids; "." is the end token, "-" the silent one."""
    return [(LETTERS + ".-" + OTHERS).index(c) for c in text]


def script(**options: Any) -> WorkerSpec:
    """A spec for the worker; see `Script` for the options."""
    return WorkerSpec("scripted", options, engine_factory="tests.appliance.scripted:load")


def request(name: str = "r1", prompt: str = "ab", **changes: Any) -> GenerateRequest:
    return GenerateRequest(id=name, prompt_ids=ids(prompt), sampling=Sampling(), model="m", **changes)


@dataclass
class Script:
    """Steps are counted over all requests, from 1; the prompt is read `chunk` tokens a step."""

    text: str = "hello."
    n_ctx: int = 1000
    chunk: int = 512
    step_s: float = 0.0
    chunk_s: float = 0.0
    hang_at: int = 0
    kill_at: int = 0
    segfault_at: int = 0
    raise_at: int = 0
    fail_at: int = 0
    n_parallel: int = 1
    load: str = "good"
    compile_s: float = 0.0
    load_s: float = 0.0
    once: str = ""  # a file: the script of evil is played only while it does not exist, and then it does


@dataclass(eq=False)
class Seq:
    prompt: list[int]
    n_predict: int
    eog_ids: frozenset[int]
    n_logprobs: int
    seed: int = 7
    n_cached: int = 0
    n_read: int = 0
    n_written: int = 0


@dataclass
class StepOut:
    phase: str
    done: int
    total: int
    token: int | None = None
    logprob: float | None = None
    top: list[tuple[int, float]] = field(default_factory=list)
    finish: str | None = None
    cancelled: bool = False
    more: tuple["StepOut", ...] = ()


@dataclass
class Info:
    n_ctx: int
    name: str = "scripted"
    model_digest: str = "none"
    n_parallel: int = 1


class Engine:
    def __init__(self, script: Script) -> None:
        self.info = Info(script.n_ctx, n_parallel=script.n_parallel)
        self.script = script
        self.n_steps = self.n_layers = 0
        self.widths: list[int] = []  # of each step, how many sequences it had
        self.open_sequences = 0
        self._cancel = threading.Event()

    def open(self, ids: list[int], sampling: Any, n_predict: int, eog_ids: frozenset[int], n_logprobs: int = 0) -> Seq:
        self.open_sequences += 1
        return Seq(ids, n_predict, eog_ids, n_logprobs)

    def close(self, seq: Seq) -> None:
        self.open_sequences -= 1

    def cancel(self) -> None:
        self._cancel.set()

    def beat(self) -> int:
        return self.n_layers

    def shutdown(self) -> None:
        assert self.open_sequences == 0

    def step_many(self, sequences: list[Seq]) -> list[StepOut]:
        self._cancel.clear()  # the harsher of two possible engines: a cancel between steps is lost
        self.n_steps += 1
        self.widths.append(len(sequences))
        self._evil()
        reads = [seq.n_read < len(seq.prompt) for seq in sequences]
        until = time.monotonic() + max(self.script.chunk_s if read else self.script.step_s for read in reads)
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(LAYER_S, left))
            self.n_layers += 1
            if self._cancel.is_set():
                return [
                    StepOut("prefill" if read else "decode", seq.n_read, len(seq.prompt), cancelled=True)
                    for seq, read in zip(sequences, reads, strict=True)
                ]
        self.n_layers += 1
        return [self._read(s) if read else self._write(s) for s, read in zip(sequences, reads, strict=True)]

    def _read(self, seq: Seq) -> StepOut:
        seq.n_read = min(len(seq.prompt), seq.n_read + self.script.chunk)
        return StepOut("prefill", seq.n_read, len(seq.prompt))

    def _write(self, seq: Seq) -> StepOut:
        text = self.script.text
        token = ids(text[seq.n_written % len(text)])[0]
        if seq.n_written >= len(text) and seq.n_written % UNLIKE == 0 and token < END:
            token = (token + 1) % END  # a text that has no end is no loop for that
        seq.n_written += 1
        finish = "stop" if token in seq.eog_ids else "length" if seq.n_written == seq.n_predict else None
        top = [(token, -0.5), (0, float("-inf"))][: seq.n_logprobs]
        return StepOut("decode", seq.n_written, seq.n_predict, token, -0.5, top, finish)

    def _evil(self) -> None:
        now, plan = self.n_steps, self.script
        if now not in (plan.hang_at, plan.kill_at, plan.segfault_at, plan.raise_at, plan.fail_at):
            return
        if plan.once and os.path.exists(plan.once):
            return
        if plan.once:
            open(plan.once, "w").close()
        if now == plan.fail_at:
            raise EngineFailed("a logit of model scripted is not a number; the answer was ended")
        if now == plan.raise_at:
            raise RuntimeError("the arena is gone")
        if now == plan.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if now == plan.segfault_at:
            ctypes.string_at(0)
        while True:
            time.sleep(1)


def load(spec: dict[str, Any], on_progress: Callable[[str, int, int, str], None]) -> tuple[Engine, Vocab]:
    plan = Script(**spec["options"])
    on_progress("compile", 1, 2, "norm")
    time.sleep(plan.compile_s)
    on_progress("load", 1, 2, "blk.0")
    time.sleep(plan.load_s)
    if plan.load == "bad":
        raise BadModelFile("tensor 41 ends 2,048 bytes past the file; the download is cut short")
    if plan.load == "full":
        raise DoesNotFit("9 GB are needed and 8 GB are free; lower ctx_size")
    if plan.load == "die":
        signal.raise_signal(signal.SIGILL)
    if plan.load == "raise":
        raise RuntimeError("no such thing")
    return Engine(plan), vocab()
