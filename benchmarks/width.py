"""Tokens a second when several sequences decode together: one pass over the weights serves them all.

    python -m benchmarks.width [-m MODEL] [-w 1,2,4,8,16] [-t THREADS] [-r ROUNDS] [-n TOKENS] [-d DEPTH] [--json]

Widths take turns, round after round, so that what else the machine does hits all alike; medians count. Not here:
peers (peers.py), one sequence's speed in all its conditions (`colibri bench`).
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from appliance.machine.host import read_machine
from benchmarks.model import smollm2
from engine.generate import Engine
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling


def seconds_a_step(engine: Engine, width: int, n_tokens: int, depth: int) -> float:
    """Median seconds of a step that makes one token in each of `width` sequences, `depth` positions in."""
    n_vocab = engine.info.n_vocab
    prompts = [[(j * 7919 + i * 104729 + 11) % n_vocab for j in range(depth)] for i in range(width)]
    open_ones = [engine.open(ids, Sampling(temperature=0.0), n_tokens + 2) for ids in prompts]
    try:
        while any(s.phase == "prefill" for s in open_ones):
            engine.step_many([s for s in open_ones if s.phase == "prefill"])
        times = []
        for _ in range(n_tokens):
            start = time.perf_counter()
            outs = engine.step_many(open_ones)
            times.append(time.perf_counter() - start)
            assert all(out.token is not None for out in outs)
        return statistics.median(times)
    finally:
        for s in open_ones:
            engine.close(s)


def curve(engine: Engine, widths: list[int], rounds: int, n_tokens: int, depth: int) -> dict[int, float]:
    """Width -> tokens a second of all sequences together, the median over the rounds."""
    samples: dict[int, list[float]] = {width: [] for width in widths}
    for width in widths:
        seconds_a_step(engine, width, 2, depth)
    for i in range(rounds):
        for width in widths if i % 2 == 0 else reversed(widths):
            samples[width].append(width / seconds_a_step(engine, width, n_tokens, depth))
    return {width: statistics.median(found) for width, found in samples.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how decoding speeds up with several sequences at once.")
    parser.add_argument("-m", "--model", type=Path, default=None, help="a GGUF file (SmolLM2 unless given)")
    parser.add_argument("-w", "--widths", default="1,2,4,8,16", help="sequences decoding together")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("-n", "--tokens", type=int, default=16, help="steps measured per width and round")
    parser.add_argument("-d", "--depth", type=int, default=16, help="positions each sequence has behind it")
    parser.add_argument("--kv", default="f16", help="type of keys and values")
    parser.add_argument("--load-mode", default="auto")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        widths = sorted({int(word) for word in args.widths.split(",")})
    except ValueError:
        sys.exit(f"-w is {args.widths!r}; numbers with commas between are expected, as in 1,2,4,8,16")
    if widths[0] < 1 or args.depth < 1 or args.rounds < 1 or args.tokens < 1:
        sys.exit("widths, rounds, tokens and depth are 1 or more")
    options = EngineOptions(
        n_ctx=args.depth + args.tokens + 8, threads=args.threads, threads_batch=args.threads, n_parallel=widths[-1],
        type_k=args.kv, type_v=args.kv, load_mode=args.load_mode,
    )  # fmt: skip
    model = args.model or smollm2()
    engine = load_engine(model, options, read_machine())
    try:
        found = curve(engine, widths, args.rounds, args.tokens, args.depth)
    finally:
        engine.shutdown()
    if args.json:
        print(json.dumps({"model": model.name, "threads": args.threads, "depth": args.depth, "tokens_per_s": found}))
        return
    print(f"{model.name}, {args.threads} threads, {args.depth} positions deep, {args.kv} keys and values")
    for width, speed in found.items():
        print(f"  {width:3d} together  {speed:8.2f} tok/s  {speed / found[widths[0]]:5.2f} times width {widths[0]}")


if __name__ == "__main__":
    main()
