"""Tokens a second when several sequences decode together: one pass over the weights serves them all.

    python -m benchmarks.width [-m MODEL] [-w 1,2,4,8,16] [-t THREADS] [-r ROUNDS] [-n TOKENS] [-d DEPTH] [--json]

Adds to benchmarks/results/<machine>.json. Widths take turns, round after round, so that what else the machine does hits
all alike; medians count. Not here: peers (peers.py), one sequence's speed in all its conditions (`colibri bench`).
"""

import argparse
import json
import statistics
import sys
import time
from typing import Any

from appliance.machine.host import read_machine
from benchmarks.machine import BUSY_LIMIT, wait_for_quiet
from benchmarks.models import model_path
from benchmarks.ours import our_version
from benchmarks.record import load, save, stamp
from engine.generate import Engine
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling

WHOLE = 5
"""Fewer rounds are a look, and no figure is kept of them."""


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


def curve(
    engine: Engine, widths: list[int], rounds: int, n_tokens: int, depth: int, patience_s: float
) -> tuple[dict[int, list[float]], list[float]]:
    """Width -> tokens a second of all sequences together, one for each round; and the busy share before each."""
    samples: dict[int, list[float]] = {width: [] for width in widths}
    busy = []
    for width in widths:
        seconds_a_step(engine, width, 2, depth)
    for i in range(rounds):
        busy.append(wait_for_quiet(patience_s))
        for width in widths if i % 2 == 0 else reversed(widths):
            samples[width].append(width / seconds_a_step(engine, width, n_tokens, depth))
    return samples, busy


def row(width: int, speeds: list[float], alone: float) -> dict[str, Any]:
    """What the results file keeps of a width."""
    speed = statistics.median(speeds)
    samples = [round(s, 2) for s in speeds]
    return {"width": width, "median_ts": round(speed, 2), "ratio": round(speed / alone, 3), "samples_ts": samples}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how decoding speeds up with several sequences at once.")
    parser.add_argument("-m", "--model", default="1b-q4_k_m", help="a model or a file (default: %(default)s)")
    parser.add_argument("-w", "--widths", default="1,2,4,8,16", help="sequences decoding together")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=5, help="fewer than 5 are not kept")
    parser.add_argument("-n", "--tokens", type=int, default=16, help="steps measured per width and round")
    parser.add_argument("-d", "--depth", type=int, default=16, help="positions each sequence has behind it")
    parser.add_argument("--kv", default="f16", help="type of keys and values")
    parser.add_argument("--load-mode", default="auto")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a quiet machine per round")
    parser.add_argument("--json", action="store_true", help="print what the results file keeps")
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
    model = model_path(args.model)
    engine = load_engine(model, options, read_machine())
    try:
        found, busy = curve(engine, widths, args.rounds, args.tokens, args.depth, args.patience)
    finally:
        engine.shutdown()
    alone = statistics.median(found[widths[0]])
    kept: dict[str, Any] = stamp(model) | {
        "version": our_version(), "rounds": args.rounds, "threads": args.threads, "depth": args.depth, "kv": args.kv,
        "quiet": max(busy) <= BUSY_LIMIT, "busy_before_round": [round(b, 3) for b in busy],
        "rows": [row(width, speeds, alone) for width, speeds in found.items()],
    }  # fmt: skip
    if args.rounds >= WHOLE and widths[0] == 1:
        models = load("width").get("models", {})
        print(save("width", {"models": models | {model.stem: kept}}), file=sys.stderr)
    if args.json:
        print(json.dumps(kept, indent=1))
        return
    print(f"{model.name}, {args.threads} threads, {args.depth} positions deep, {args.kv} keys and values")
    for r in kept["rows"]:
        times = f"{r['ratio']:5.2f} times width {widths[0]}"
        print(f"  {r['width']:3d} together  {r['median_ts']:8.2f} tok/s  {times}")


if __name__ == "__main__":
    main()
