"""Decoding where the CPU is not ours alone: a busy process on every core, a quota of one CPU with more in sight.

    python -m benchmarks.pressure [busy quota served] [-m MODEL ...] [--json]     all three, SmolLM2 unless given

Adds to benchmarks/results/<machine>.json. busy: the engine with a `while True` process of nice 0 on each of its cores,
itself at nice 0 and at the worker's niceness, against itself without them. quota: one CPU by control group, with all
CPUs in the mask, against one pinned thread without a quota; needs root. served: both once more through the API. Quiet
and pressed take turns, medians of the ratios count: at least 0.35 busy, 0.9 under the quota, which is to run out in
under 2% of its periods. Not here: peers.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from appliance.machine.host import default_threads, read_machine
from appliance.worker import NICE
from benchmarks import ours
from benchmarks.client import stream_chat
from benchmarks.cpu_group import CpuGroup
from benchmarks.machine import BUSY_LIMIT, pin_self, pinned, wait_for_quiet
from benchmarks.models import model_path
from benchmarks.record import load, save, stamp
from engine.generate import Engine
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling

N_CTX = 1024
KINDS = ("busy", "quota", "served")


@contextmanager
def hogs(cpus: Sequence[int]) -> Iterator[None]:
    """A process that never rests on each of `cpus`, at nice 0."""
    idle = [sys.executable, "-c", "import os; os.setpriority(os.PRIO_PROCESS, 0, 0)\nwhile True: pass"]
    running = [subprocess.Popen(idle, preexec_fn=partial(pin_self, [cpu])) for cpu in cpus]
    try:
        time.sleep(0.3)
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def decode_rate(engine: Engine, seconds: float) -> float:
    """Tokens per second of greedy decoding for about so long."""
    n, spent, greedy = 0, 0.0, Sampling(temperature=0.0)
    while spent < seconds:
        seq = engine.open([1, 2, 3], greedy, N_CTX - 4)
        while engine.step(seq).token is None:
            pass
        start = time.perf_counter()
        while seq.finish is None and time.perf_counter() - start < seconds - spent:
            engine.step(seq)
            n += 1
        spent += time.perf_counter() - start
        engine.close(seq)
    return n / spent


def open_engine(model: Path, threads: int) -> Engine:
    return load_engine(model, EngineOptions(N_CTX, threads=threads, threads_batch=threads), read_machine())


def busy(model: Path, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """A row for each niceness; threads that exist already get it, as raising it needs no right."""
    cpus = pinned(default_threads(read_machine()))
    engine, rows = open_engine(model, len(cpus)), []
    for nice in (0, NICE):
        for task in os.listdir("/proc/self/task"):
            os.setpriority(os.PRIO_PROCESS, int(task), nice)
        pairs = []
        for _ in range(rounds):
            quiet = decode_rate(engine, seconds)
            with hogs(cpus):
                pairs.append((decode_rate(engine, seconds), quiet))
        rows.append({"what": f"busy, nice {nice}", "threads": len(cpus)} | _ratio(pairs))
    engine.shutdown()
    return rows


def quota(model: Path, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """One row. The pinned thread takes the CPUs in turn, so that none of them is the yardstick alone."""
    mask = sorted(os.sched_getaffinity(0))
    with CpuGroup("colibri-pressure", 1.0) as group:
        group.enter()
        threads = default_threads(read_machine())
        engine = open_engine(model, threads)
        pairs, counts = [], [0, 0]
        for i in range(rounds):
            group.leave()
            os.sched_setaffinity(0, {mask[i % len(mask)]})
            free = decode_rate(engine, seconds)
            os.sched_setaffinity(0, mask)
            group.enter()
            before = group.periods()
            pairs.append((decode_rate(engine, seconds), free))
            counts = [n + now - then for n, now, then in zip(counts, group.periods(), before, strict=True)]
        engine.shutdown()
    return [{"what": "quota of 1 CPU", "threads": threads} | _ratio(pairs) | _throttled(counts)]


def served(model: Path, rounds: int) -> list[dict[str, Any]]:
    """Two rows, through HTTP: worker and API process share the cores and the quota."""
    mask = sorted(os.sched_getaffinity(0))
    rows = []
    cpus = pinned(default_threads(read_machine()))
    with ours.Server(model, n_ctx=N_CTX, n_threads=len(cpus), cpus=mask) as server:
        _ask(server.url)
        pairs = []
        for _ in range(rounds):
            quiet = _ask(server.url)
            with hogs(cpus):
                pairs.append((_ask(server.url), quiet))
        rows.append({"what": f"busy, served (nice {NICE})", "threads": len(cpus)} | _ratio(pairs))
    alone_server = ours.Server(model, n_ctx=N_CTX, n_threads=1, cpus=mask[:1])
    with CpuGroup("colibri-pressure", 1.0) as group, alone_server as free:
        group.enter()
        with ours.Server(model, n_ctx=N_CTX, n_threads=0, cpus=mask) as server:
            group.leave()
            _ask(server.url), _ask(free.url)
            threads, pairs, counts = int(server.state()["worker"]["threads"]), [], [0, 0]
            for _ in range(rounds):
                alone, before = _ask(free.url), group.periods()
                pairs.append((_ask(server.url), alone))
                counts = [n + now - then for n, now, then in zip(counts, group.periods(), before, strict=True)]
    rows.append({"what": "quota of 1 CPU, served", "threads": threads} | _ratio(pairs) | _throttled(counts))
    return rows


def _ask(url: str) -> float:
    body = {"messages": [{"role": "user", "content": "Tell a long story."}], "max_tokens": 256, "ignore_eos": True}
    return asyncio.run(stream_chat(url, body)).tokens_per_second


def _ratio(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    return {
        "pressed_ts": round(median(p for p, _ in pairs), 2), "quiet_ts": round(median(q for _, q in pairs), 2),
        "ratio": round(median(p / q for p, q in pairs), 3), "ratios": [round(p / q, 3) for p, q in pairs],
    }  # fmt: skip


def _throttled(counts: Sequence[int]) -> dict[str, Any]:
    return {"periods": counts[0], "throttled": round(counts[1] / max(1, counts[0]), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Decoding on busy cores and under a CPU quota.")
    parser.add_argument("kinds", nargs="*", default=[], metavar="KIND", help=f"of {', '.join(KINDS)} (default: all)")
    parser.add_argument("-m", "--model", action="append", default=[], help="a name as in benchmarks.models, or a file")
    parser.add_argument("--rounds", type=int, default=5, help="fewer than 5 are a look, and are not kept")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each turn of the engine")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    args = parser.parse_args()
    if unknown := set(args.kinds) - set(KINDS):
        raise SystemExit(f"{', '.join(sorted(unknown))}: there are {', '.join(KINDS)}")
    models = load("pressure").get("models", {})
    for model in map(model_path, args.model or ["smollm2"]):
        others, rows = wait_for_quiet(args.patience), []
        for kind in args.kinds or KINDS:
            if kind == "served":
                rows += served(model, args.rounds)
            else:
                rows += {"busy": busy, "quota": quota}[kind](model, args.rounds, args.seconds)
        about = {"version": ours.our_version(), "rounds": args.rounds, "quiet": others <= BUSY_LIMIT}
        models[model.stem] = stamp(model) | about | {"rows": rows}
        for row in rows:
            print(json.dumps(row) if args.json else f"{model.stem}: {_words(row)}")
    if args.rounds >= 5 and not args.kinds:
        print(save("pressure", {"models": models}), file=sys.stderr)


def _words(row: dict[str, Any]) -> str:
    throttled = f", throttled in {row['throttled']:.1%} of {row['periods']} periods" if "periods" in row else ""
    speeds = f"{row['pressed_ts']:.1f} of {row['quiet_ts']:.1f} tokens/s"
    return f"{row['what']}, {row['threads']} threads: {speeds}, {row['ratio']:.2f}{throttled}"


if __name__ == "__main__":
    main()
