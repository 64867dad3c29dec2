"""One prompt, many ways to compute it, one set of bits: threads, chunks, layout, company, guesses, sleeps.

    python -m benchmarks.identity [-m MODEL]      20 prompts in every way
    python -m benchmarks.identity --full          200 prompts of 1 to 700 ids; exit 1 when two digests of one differ

A prompt's digest is over the raw logits behind it and behind every token made, and those tokens, greedy and sampled
with a fixed seed. The full run has two halves. On a tiny model of every tensor type: all 200 prompts through all of
(1, 2 threads) x (chunks of 1, 7, 64, 512) x (panels, file rows), beside 0 to 5 others, with shared prompt pages,
guessed tokens and (two threads) sleeps at random instants, against one thread, one chunk, alone and awake; then the
other cache types. On SmolLM2 every prompt twice: alone in one chunk, and in one of the sixteen ways, by turns. Not
here: whether the logits are right (accuracy.py).
"""

import argparse
import hashlib
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from appliance.machine.host import read_machine
from benchmarks.model import smollm2
from benchmarks.naps import Naps, naps
from engine.cache.layout import KV_TYPES
from engine.generate import Engine
from engine.load import EngineOptions, load_engine
from engine.quants.registry import TYPES
from engine.sampling import Sampling
from engine.sequence import Sequence as Text
from engine.sequence import StepOut
from tests.tiny import tiny_llama

VOICES = {
    "greedy": Sampling(temperature=0.0),
    "sampled": Sampling(
        temperature=1.1, top_k=0, top_p=0.97, min_p=0.0, repeat_penalty=1.1, presence_penalty=0.2, seed=7
    ),
}
EDGES = (1, 2, 3, 7, 8, 9, 63, 64, 65, 255, 256, 257, 258, 511, 512, 513, 514, 700)  # around chunks and pages
LONGEST = max(EDGES)
N_MADE = 6  # tokens made behind a prompt
MOST_BESIDE = 5
Answers = dict[tuple[int, str], list[int]]


@dataclass(frozen=True, slots=True)
class Way:
    """One way through the engine. `ubatch` is the prefill chunk in tokens; resident = panels, mmap = file rows, stream:
    panels of `pinned` bytes, file rows through a `ring`, `experts` bytes of experts; `beside` = other sequences at
    most; `is_rough` adds sleeps, shared prompt pages and guesses."""

    threads: int = 1
    ubatch: int = 512
    load_mode: str = "resident"
    kv: tuple[str, str] = ("f16", "f16")
    beside: int = 0
    is_rough: bool = False
    pinned: int = 0
    ring: int = 64 << 20
    experts: int = 64 << 20

    def options(self, longest: int) -> EngineOptions:
        return EngineOptions(
            n_ctx=longest + N_MADE, threads=self.threads, threads_batch=self.threads, batch_size=max(self.ubatch, 512),
            ubatch_size=self.ubatch, type_k=self.kv[0], type_v=self.kv[1], load_mode=self.load_mode,
            n_parallel=1 + self.beside, pinned_bytes=self.pinned, ring_bytes=self.ring, expert_bytes=self.experts,
        )  # fmt: skip

    def __str__(self) -> str:
        streams = f"{self.pinned:,} bytes pinned, a ring of {self.ring:,}, {self.experts:,} of experts"
        layout = {"resident": "panels", "mmap": "file rows", "stream": streams}[self.load_mode]
        company = f", beside 0-{self.beside}" if self.beside else ""
        rough = (", sleeps" if self.threads > 1 else "") + ", guesses" if self.is_rough else ""
        return f"{self.threads} threads, chunks of {self.ubatch}, {layout}, {'/'.join(self.kv)}{company}{rough}"


def ways(kv: tuple[str, str] = ("f16", "f16"), beside: int = MOST_BESIDE) -> Iterator[Way]:
    """Every combination that the determinism rule names, in company and disturbed."""
    for load_mode in ("resident", "mmap"):
        for threads in (1, 2):
            for ubatch in (512, 64, 7, 1):
                yield Way(threads, ubatch, load_mode, kv, beside, is_rough=True)


def prompts(n: int, n_vocab: int, longest: int = LONGEST, seed: int = 1) -> list[list[int]]:
    """`n` prompts of 1 to `longest` ids, the edges of chunks and pages among them; the same on every machine."""
    rng = np.random.default_rng(seed)
    lengths = [e for e in EDGES if e <= longest][-n:]
    lengths += [int(x) for x in rng.integers(1, longest + 1, n - len(lengths))]
    return [[int(i) for i in rng.integers(0, n_vocab, length)] for length in lengths]


@dataclass(slots=True)
class _Voice:
    """One prompt on its way in one voice."""

    key: tuple[int, str]
    text: Text
    bits: Any = field(default_factory=hashlib.sha256)
    made: list[int] = field(default_factory=list)

    def take(self, out: StepOut, engine: Engine) -> None:
        """Digest what a step brought."""
        if out.token is not None:
            for one, logits in zip((out, *out.more), engine.logits_of(self.text), strict=True):
                assert one.token is not None
                self.bits.update(logits.tobytes() + one.token.to_bytes(8, "little"))
                self.made.append(one.token)


class Run:
    """All prompts through one engine in one way: `digests` by prompt, `answers` by prompt and voice."""

    def __init__(self, engine: Engine, way: Way, texts: Mapping[int, list[int]], known: Answers | None = None) -> None:
        self.engine, self.way, self.texts, self.known = engine, way, texts, known or {}
        self.answers: Answers = {}
        self.n_steps = self.n_guessed = self.n_cached = 0
        self._rng = random.Random(f"{way}")
        self._found: dict[tuple[int, str], str] = {}
        self._go()
        self.digests = {i: self._found[i, "greedy"] + self._found[i, "sampled"] for i in texts}

    def _go(self) -> None:
        order = list(self.texts)
        if self.way.beside:
            self._rng.shuffle(order)
        # A rough way opens the second voice when the first has read the prompt, to share its pages.
        todo = [(i, v) for i in reversed(order) for v in (["greedy"] if self.way.is_rough else VOICES)]
        twins: list[tuple[int, str]] = []
        going: list[_Voice] = []
        while todo or twins or going:
            while twins and len(going) < 1 + self.way.beside:
                going.append(self._open(twins.pop(), going))
            room = max(1, self._rng.randint(0, self.way.beside))
            while todo and len(going) < room:
                going.append(self._open(todo.pop(), going))
            if self.way.is_rough:
                for voice in going:
                    self._guess(voice)
            for voice, out in zip(going, self.engine.step_many([v.text for v in going]), strict=True):
                voice.take(out, self.engine)
                if self.way.is_rough and voice.key[1] == "greedy" and out.phase == "prefill" and out.token is not None:
                    twins.append((voice.key[0], "sampled"))
            self.n_steps += 1
            for voice in [v for v in going if v.text.finish]:
                going.remove(voice)
                self._found[voice.key], self.answers[voice.key] = voice.bits.hexdigest()[:16], voice.made
                self.engine.close(voice.text)

    def _open(self, key: tuple[int, str], going: list[_Voice]) -> _Voice:
        twin = next((v.text for v in going if v.key[0] == key[0]), None)
        text = self.engine.open(self.texts[key[0]], VOICES[key[1]], N_MADE, like=twin)
        self.n_cached += text.n_cached
        return _Voice(key, text)

    def _guess(self, voice: _Voice) -> None:
        """Now and then the next tokens as they are known to come, now and then one of them wrong."""
        right = self.known.get(voice.key, [])[len(voice.made) :]
        if voice.text.phase == "decode" and right and self._rng.random() < 0.5:
            guess = right[: self._rng.randint(1, 3)]
            if self._rng.random() < 0.5:
                guess[self._rng.randrange(len(guess))] = self._rng.randrange(self.engine.info.n_vocab)
            voice.text.draft = guess
            self.n_guessed += len(guess)


def run(path: Path, way: Way, texts: Mapping[int, list[int]], known: Answers | None = None) -> tuple[Run, Naps]:
    """Load, run one way, shut down."""
    engine = load_engine(path, way.options(max(map(len, texts.values()))), read_machine())
    try:
        with naps(engine, seed=1) if way.is_rough and way.threads > 1 else nullcontext(Naps()) as slept:
            return Run(engine, way, texts, known), slept
    finally:
        engine.shutdown()


def every_type(path: Path) -> Path:
    """A tiny model whose matrices are of all types in turn."""
    names = [
        f"blk.{i}.{part}.weight"
        for i in range(3)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    ]
    kinds = list(TYPES)
    quants = {name: kinds[i % len(kinds)] for i, name in enumerate([*names, "token_embd.weight", "output.weight"])}
    return tiny_llama(path, quants=quants, n_layers=3, n_embd=256, n_ff=512, n_ctx=1024)


class Verdict:
    """Compares ways with a reference and tells."""

    def __init__(self, path: Path, texts: Sequence[list[int]], reference: Way = Way()) -> None:
        self.path, self.texts = path, dict(enumerate(texts))
        self.n_wrong = 0
        start = time.perf_counter()
        self.reference, _ = run(path, reference, self.texts)
        say(f"{path.name}: {len(texts)} prompts, {sum(map(len, texts))} ids", start, f"reference: {reference}")

    def check(self, way: Way, which: Iterable[int] | None = None) -> None:
        """Run a way over all prompts or some of them."""
        start = time.perf_counter()
        texts = {i: self.texts[i] for i in (self.texts if which is None else which)}
        found, slept = run(self.path, way, texts, self.reference.answers)
        wrong = [i for i, digest in found.digests.items() if digest != self.reference.digests[i]]
        self.n_wrong += len(wrong)
        right = f"{len(texts) - len(wrong)} of {len(texts)} equal"
        facts = f"{found.n_steps} steps, {slept.sent} sleeps, {found.n_guessed} guesses, {found.n_cached} ids shared"
        say(f"{right}  {way}", start, facts)
        for i in wrong[:10]:
            print(f"    prompt {i} of {len(texts[i])} ids: {found.digests[i]}, not {self.reference.digests[i]}")


def say(what: str, start: float, more: str) -> None:
    print(f"{what}  {time.perf_counter() - start:.1f} s  ({more})", flush=True)


def quick(model: Path) -> int:
    """20 prompts in every way, for two cache types; how many digests differ."""
    n_wrong = 0
    for kv in (("f16", "f16"), ("q8_0", "q8_0")):
        verdict = Verdict(model, prompts(20, 30000 if model == smollm2() else 256, 300), Way(kv=kv))
        for way in ways(kv):
            verdict.check(way)
        n_wrong += verdict.n_wrong
    return n_wrong


def full(model: Path) -> int:
    """The whole proof; how many digests differ."""
    with tempfile.TemporaryDirectory() as folder:
        tiny = every_type(Path(folder) / "tiny.gguf")
        verdict = Verdict(tiny, prompts(200, 320))
        for way in ways():
            verdict.check(way)
        n_wrong = verdict.n_wrong
        others = [kv for kv in KV_TYPES if kv != "f16"]
        for kv in [*((t, t) for t in others), *((others[-1], "f16"), ("f16", others[-1]))]:
            verdict = Verdict(tiny, prompts(30, 320, seed=2), Way(kv=kv))
            for way in list(ways(kv))[1::5]:  # 512, 64, 7 and 1; both threads, both layouts
                verdict.check(way)
            n_wrong += verdict.n_wrong
    verdict = Verdict(model, prompts(200, 30000), Way(threads=2))
    every = list(ways())
    for i, way in enumerate(every):
        verdict.check(way, range(i, 200, len(every)))
    return n_wrong + verdict.n_wrong


def main() -> None:
    parser = argparse.ArgumentParser(description="Show that no way of computing changes a bit of the logits.")
    parser.add_argument("-m", "--model", type=Path, default=None, help="a GGUF file (SmolLM2 unless given)")
    parser.add_argument("--full", action="store_true", help="200 prompts of 1 to 700 ids, about 10 minutes")
    args = parser.parse_args()
    start = time.perf_counter()
    n_wrong = (full if args.full else quick)(args.model or smollm2())
    if n_wrong:
        sys.exit(f"{n_wrong} digests differ")
    say("one digest per prompt in every way", start, "in all")


if __name__ == "__main__":
    main()
