"""Start and memory: from nothing to the first token, warm and cold, and what the two processes cost beyond the weights.

    python -m benchmarks.start        adds to benchmarks/results/<machine>.json

Not here: speed once running (peers.py, serve.py).
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import ours
from benchmarks.client import stream_chat
from benchmarks.machine import children, pinned, rss_anon, wait_for_quiet
from benchmarks.model import smollm2
from benchmarks.record import save, stamp

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
    args = parser.parse_args()
    model = args.model or smollm2()
    busy = wait_for_quiet(args.patience)
    found = starts(model, args.repeat)
    rows = [memory(model, mode) for mode in ("resident", "mmap")]
    version = {"version": ours.our_version(), "busy_before": round(busy, 3)}
    print(save("start", stamp(model) | version | found | {"memory": rows}), file=sys.stderr)
    print(f"first token: warm {found['warm_s']:.2f} s, cold {found['cold_s']:.1f} s")
    for row in rows:
        print(", ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
