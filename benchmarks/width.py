"""Tokens a second when several sequences decode together: one pass over the weights serves them all.

    python -m benchmarks.width [-m 1b-q4_k_m,FILE] [-w 1,2,4,8,16] [--rounds 5] [--json]

Widths take turns, round after round, so that a slow minute hits all alike; medians count and, from five rounds on, go
to benchmarks/results/<machine>.json. Not here: peers (peers.py), one sequence's speed in all its conditions
(`colibri bench`), the same bits at every width (identity.py).
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from appliance.machine.host import read_machine
from benchmarks.machine import BUSY_LIMIT, wait_for_quiet
from benchmarks.models import model_path
from benchmarks.ours import our_version
from benchmarks.record import load, save, stamp
from engine.generate import Engine
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling

WHOLE = 5  # fewer rounds are a look, and no figure is kept of them


def seconds_a_step(engine: Engine, width: int, n_steps: int, depth: int) -> float:
    """Median seconds of a step that makes one token in each of `width` sequences, `depth` positions in."""
    n_vocab = engine.info.n_vocab
    prompts = [[(j * 7919 + i * 104729 + 11) % n_vocab for j in range(depth)] for i in range(width)]
    texts = [engine.open(ids, Sampling(temperature=0.0), n_steps + 2) for ids in prompts]
    try:
        while reading := [t for t in texts if t.phase == "prefill"]:
            engine.step_many(reading)
        times = []
        for _ in range(n_steps):
            start = time.perf_counter()
            outs = engine.step_many(texts)
            times.append(time.perf_counter() - start)
            assert all(out.token is not None for out in outs)
        return statistics.median(times)
    finally:
        for text in texts:
            engine.close(text)


class Curve:
    """Samples of one model: tokens a second of all sequences together, by width."""

    def __init__(self, path: Path, args: argparse.Namespace) -> None:
        self.path, self.args = path, args
        self.samples: dict[int, list[float]] = {width: [] for width in args.widths}
        self.busy: list[float] = []
        options = EngineOptions(
            n_ctx=args.depth + args.steps + 8, threads=args.threads, threads_batch=args.threads,
            n_parallel=max(args.widths), type_k=args.kv, type_v=args.kv, load_mode=args.load_mode,
        )  # fmt: skip
        engine = load_engine(path, options, read_machine())
        try:
            self._play(engine)
        finally:
            engine.shutdown()

    def _play(self, engine: Engine) -> None:
        for width in self.args.widths:
            seconds_a_step(engine, width, 2, self.args.depth)
        for n in range(self.args.rounds):
            self.busy.append(wait_for_quiet(self.args.patience))
            print(f"{self.path.stem}: round {n + 1}, others used {self.busy[-1]:.0%} before it", file=sys.stderr)
            for width in self.args.widths if n % 2 == 0 else reversed(self.args.widths):
                step = seconds_a_step(engine, width, self.args.steps, self.args.depth)
                self.samples[width].append(width / step)

    def rows(self) -> list[dict[str, Any]]:
        """One row per width; `ratio` to the least width, the median of the rounds' own ratios."""
        first = self.samples[self.args.widths[0]]
        out = []
        for width, found in self.samples.items():
            ratio = statistics.median(mine / one for mine, one in zip(found, first, strict=True))
            row = {"width": width, "median_ts": round(statistics.median(found), 2), "ratio": round(ratio, 2)}
            out.append(row | {"samples_ts": [round(ts, 2) for ts in found]})
        return out

    def result(self) -> dict[str, Any]:
        """What the results file keeps of this model."""
        a = self.args
        return stamp(self.path) | {
            "version": our_version(),
            "rounds": a.rounds, "threads": a.threads, "depth": a.depth, "kv": a.kv, "steps": a.steps,
            "quiet": max(self.busy) <= BUSY_LIMIT, "busy_before_round": [round(b, 3) for b in self.busy],
            "rows": self.rows(),
        }  # fmt: skip


def _widths(text: str) -> list[int]:
    try:
        widths = sorted({int(word) for word in text.split(",")})
    except ValueError:
        widths = [0]
    if widths[0] < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of widths such as 1,2,4,8,16")
    return widths


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how decoding speeds up with several sequences at once.")
    parser.add_argument("-m", "--models", default="1b-q4_k_m", help="names or GGUF files (default: %(default)s)")
    parser.add_argument("-w", "--widths", type=_widths, default="1,2,4,8,16", help="sequences decoding together")
    parser.add_argument("-t", "--threads", type=_count, default=2)
    parser.add_argument("--rounds", type=_count, default=WHOLE)
    parser.add_argument("--steps", type=_count, default=16, help="steps measured per width and round")
    parser.add_argument("-d", "--depth", type=_count, default=16, help="positions each sequence has behind it")
    parser.add_argument("--kv", default="f16", help="type of keys and values")
    parser.add_argument("--load-mode", default="auto")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a quiet machine each round")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found: dict[str, Any] = {}
    for name in args.models.split(","):
        path = model_path(name)
        curve = Curve(path, args)
        found[path.stem] = curve.result()
        if not args.json:
            print(f"{path.name}, {args.threads} threads, {args.depth} positions deep, {args.kv} keys and values")
            for row in curve.rows():
                print(f"  {row['width']:3d} together  {row['median_ts']:8.2f} tok/s  {row['ratio']:5.2f} times")
        if args.rounds >= WHOLE:
            save("width", {"models": load("width").get("models", {}) | found})
    if args.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
