"""Start and memory: from nothing to the first token, loading weights, and what the two processes cost beyond them.

    python -m benchmarks.start                adds to benchmarks/results/<machine>.json
    python -m benchmarks.start --load FILE    only prints how a file's weights are loaded, in this process

Not here: speed once running (peers.py, serve.py).
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from appliance.machine.host import read_machine
from benchmarks import ours
from benchmarks.client import stream_chat
from benchmarks.machine import children, memory_of, pinned, rss_anon, wait_for_quiet
from benchmarks.model import smollm2
from benchmarks.record import save, stamp
from engine.load import EngineOptions, load_engine

MB = 1e6


def first_token_s(model: Path, environment: dict[str, str]) -> tuple[float, str]:
    """Seconds from the command to the first byte of its answer, and what it said on the way."""
    run = ours.command("run", "-m", str(model), "-p", "What is the capital of France?", "-n", "8", "--temp", "0")
    start = time.perf_counter()
    process = subprocess.Popen(run, cwd=ours.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    first = os.read(process.stdout.fileno(), 1)
    seconds = time.perf_counter() - start
    said = process.communicate()[1].decode(errors="replace")
    if not first or process.returncode:
        raise SystemExit(f"colibri run ended with code {process.returncode} and no answer: {said[-500:]}")
    return seconds, said


def starts(model: Path, n: int) -> dict[str, Any]:
    """Warm starts one after another, and one with an empty kernel cache."""
    warm = [first_token_s(model, dict(os.environ))[0] for _ in range(n + 1)][1:]
    with tempfile.TemporaryDirectory(prefix="colibri-cold-") as cache:
        cold, said = first_token_s(model, os.environ | {"COLIBRI_KERNEL_CACHE": cache})
    return {
        "warm_s": round(median(warm), 3),
        "warm_samples_s": [round(w, 3) for w in warm],
        "cold_s": round(cold, 2),
        "cold_shows_progress": "compil" in said.lower(),
    }


def loading(model: Path, n: int) -> dict[str, Any]:
    """Repacking the weights from the page cache, `n` times, each in a process of its own."""
    for _ in range(2):
        subprocess.run(["cat", str(model)], stdout=subprocess.DEVNULL, check=True)  # into the page cache
    load = [sys.executable, "-m", "benchmarks.start", "--load", str(model)]
    rows = [json.loads(subprocess.run(load, cwd=ours.ROOT, capture_output=True, check=True).stdout) for _ in range(n)]
    worst = max(rows, key=lambda row: row["peak_beyond_panels_mb"])
    return worst | {"seconds": round(median(row["seconds"] for row in rows), 3)}


def load_here(model: Path) -> dict[str, Any]:
    """Load with two threads; the resident peak is the kernel's own mark, begun anew when the weights' turn comes."""
    before: dict[str, float] = {}
    ends: list[float] = []

    def progress(stage: str, done: int, total: int, note: str) -> None:
        if stage == "load" and not before:
            Path("/proc/self/clear_refs").write_text("5")
            before.update(rss=memory_of("self", "VmRSS"), anon=memory_of("self", "RssAnon"), at=time.perf_counter())
            before["bytes"] = total
        elif stage == "load":
            ends.append(time.perf_counter())
            before["peak"] = memory_of("self", "VmHWM")

    options = EngineOptions(n_ctx=256, threads=2, threads_batch=2, load_mode="resident")
    load_engine(model, options, read_machine(), progress).shutdown()
    return {
        "file_mb": round(model.stat().st_size / MB, 1),
        "panels_mb": round(before["bytes"] / MB, 1),
        "seconds": round(ends[-1] - before["at"], 3),
        "peak_beyond_panels_mb": round((before["peak"] - before["rss"] - before["bytes"]) / MB, 1),
    }


def memory(model: Path, load_mode: str) -> dict[str, Any]:
    """Anonymous memory of both processes after some answers; `beyond` leaves weights and cache out."""
    flags = ["--load-mode", load_mode]
    with ours.Server(model, n_ctx=2048, n_threads=2, cpus=pinned(2), flags=flags) as server:
        body = {"messages": [{"role": "user", "content": "Tell a long story."}], "max_tokens": 64, "temperature": 0}
        for _ in range(3):
            asyncio.run(stream_chat(server.url, body))
        worker = server.state()["worker"]
        held = worker["weights_bytes"] * (load_mode == "resident") + worker["kv_bytes"]
        others = [pid for pid in children(server.process.pid) if pid != worker["pid"]]
        return {
            "load_mode": load_mode,
            "worker_rss_anon_mb": round(rss_anon(worker["pid"]) / MB, 1),
            "worker_beyond_weights_and_kv_mb": round((rss_anon(worker["pid"]) - held) / MB, 1),
            "api_rss_anon_mb": round(rss_anon(server.process.pid) / MB, 1),
            "other_processes_rss_anon_mb": [round(rss_anon(pid) / MB, 1) for pid in others],
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Time to the first token, warm and cold, and memory of a running server."
    )
    parser.add_argument("--repeat", type=int, default=5, help="warm starts; their median counts")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a quiet machine")
    parser.add_argument("-m", "--model", type=Path, default=None)
    parser.add_argument("--load", type=Path, default=None, metavar="FILE", help="load this one here, and nothing else")
    args = parser.parse_args()
    if args.load:
        print(json.dumps(load_here(args.load)))
        return
    model = args.model or smollm2()
    busy = wait_for_quiet(args.patience)
    found = starts(model, args.repeat)
    rows = [memory(model, mode) for mode in ("resident", "mmap")]
    version = {"version": ours.our_version(), "busy_before": round(busy, 3)}
    load = loading(model, args.repeat)
    print(save("start", stamp(model) | version | found | {"memory": rows, "load": load}), file=sys.stderr)
    print(f"first token: warm {found['warm_s']:.2f} s, cold {found['cold_s']:.1f} s")
    print(f"weights: {load['panels_mb']} MB in {load['seconds']} s, {load['peak_beyond_panels_mb']} MB more at peak")
    for row in rows:
        print(", ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
