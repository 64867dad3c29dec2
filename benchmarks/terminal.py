"""The terminal program's cost: start, bytes to the terminal, share of a core, memory; idle and with requests about.

    python -m benchmarks.terminal     adds to benchmarks/results/<machine>.json

The program runs on a pty that is read at once, against a real service of the real model. What it costs the model is
its CPU time; what it costs a slow line is its bytes. Not here: whether it is right (tests/terminal, tests/tui).
"""

import argparse
import os
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import ours
from benchmarks.machine import pinned, wait_for_quiet
from benchmarks.model import smollm2
from benchmarks.record import save, stamp
from tests.terminal.processes import cpu_s, rss_bytes
from tests.terminal.program import Program

N_CTX = 2048
# Columns, rows, seconds between two questions (None: paused), whether requests run and wait meanwhile.
CASES = [
    (80, 24, 2.0, False), (80, 24, 5.0, False), (120, 36, 1.0, False), (120, 36, 5.0, False), (120, 36, None, False),
    (80, 24, 2.0, True), (120, 36, 1.0, True), (120, 36, 5.0, True),
]  # fmt: skip
N_REQUESTS = 12  # one runs, the others wait
SETTLE_S = 3.0
PATIENT = ["--max-queue", "16", "--queue-timeout", "3600", "--timeout", "7200"]


def environment(server: ours.Server, home: str, term: str) -> dict[str, str]:
    key = Path(server.data.name) / "keys"
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return kept | {"HOME": home, "LANG": "C.UTF-8", "TERM": term, "COLIBRI_URL": server.url,
                   "COLIBRI_TUI_KEY_FILE": str(key), "COLIBRI_TUI_IDLE_EXIT_MIN": "0"}  # fmt: skip


def opened(env: dict[str, str], columns: int, rows: int, *words: str) -> Program:
    return Program([sys.executable, "-m", "tui", *words], env, columns=columns, rows=rows, cwd=ours.ROOT)


def starts(env: dict[str, str], n: int) -> dict[str, Any]:
    """Seconds from the command to the first panel and to the engine's state, medians of `n`; one more warms up."""
    panels, states, cpu = [], [], []
    for _ in range(n + 1):
        began = time.perf_counter()
        with opened(env, 80, 24) as program:
            program.wait("Engine", 30)
            panels.append(time.perf_counter() - began)
            program.wait(r"\[READY\]", 30)
            states.append(time.perf_counter() - began)
            cpu.append(program.cpu_s())
            maps = Path(f"/proc/{program.pid}/maps").read_text()
    return {
        "first_panel_s": round(median(panels[1:]), 3), "state_s": round(median(states[1:]), 3),
        "cpu_s": round(median(cpu[1:]), 2), "samples_s": [round(s, 3) for s in panels[1:]],
        "numba": "llvmlite" in maps,
    }  # fmt: skip


def watched(env: dict[str, str], case: tuple[int, int, float | None, bool], seconds: float) -> dict[str, Any]:
    """Bytes and CPU while nobody touches a key."""
    columns, rows, rate, is_busy = case
    with opened(env, columns, rows, "--rate", str(rate or 1.0)) as program:
        program.wait(r"\[READY\]", 30)
        if rate is None:
            program.keys("p")
            program.wait("PAUSED")
        time.sleep(SETTLE_S)
        n_bytes, cpu, began = len(program.raw), cpu_s(program.pid), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        return {
            "columns": columns, "rows": rows, "rate_s": rate, "requests": N_REQUESTS if is_busy else 0,
            "bytes_per_s": round((len(program.raw) - n_bytes) / took, 1),
            "cpu_share": round((cpu_s(program.pid) - cpu) / took, 4), "rss_mb": round(rss_bytes(program.pid) / 1e6, 1),
        }  # fmt: skip


@contextmanager
def requests(server: ours.Server) -> Iterator[None]:
    """One request that runs and others that wait, for the length of the `with`."""
    ends = threading.Event()
    body = b'{"model": "x", "prompt": "Once", "max_tokens": 400, "ignore_eos": true, "stream": true}'
    model = server.state()["model"]["id"].encode()
    asked = urllib.request.Request(
        f"{server.url}/v1/completions", body.replace(b"x", model, 1), {"Content-Type": "application/json"}
    )

    def one() -> None:
        while not ends.is_set():
            try:
                with urllib.request.urlopen(asked, timeout=600) as answer:
                    while not ends.is_set() and answer.readline():
                        pass
            except urllib.error.HTTPError as full:  # too many at once; again when there is room
                full.close()
                ends.wait(0.5)

    threads = [threading.Thread(target=one) for _ in range(N_REQUESTS)]
    for thread in threads:
        thread.start()
    try:
        until = time.monotonic() + 30
        while server.state()["n_waiting"] < N_REQUESTS - 2:
            if time.monotonic() > until:
                raise SystemExit(f"only {server.state()['n_waiting']} of {N_REQUESTS} requests came to wait")
            time.sleep(0.1)
        yield
    finally:
        ends.set()
        for thread in threads:
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="Start, traffic, CPU and memory of the terminal program.")
    parser.add_argument("--repeat", type=int, default=5, help="starts; their median counts")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each case is watched")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a quiet machine")
    parser.add_argument("-m", "--model", type=Path, default=None)
    args = parser.parse_args()
    model = args.model or smollm2()
    with (
        ours.Server(model, n_ctx=N_CTX, n_threads=1, cpus=pinned(1), flags=PATIENT) as server,
        tempfile.TemporaryDirectory(prefix="colibri-terminal-") as home,
    ):
        env = environment(server, home, "xterm-256color")
        busy = wait_for_quiet(args.patience)
        found = starts(env, args.repeat)
        rows = [watched(env, case, args.seconds) for case in CASES if not case[3]]
        with requests(server):
            rows += [watched(env, case, args.seconds) for case in CASES if case[3]]
    version = {"version": ours.our_version(), "busy_before": round(busy, 3)}
    print(save("terminal", stamp(model) | version | {"start": found, "rows": rows}), file=sys.stderr)
    print(f"start: first panel {found['first_panel_s']:.2f} s, engine's state {found['state_s']:.2f} s")
    for row in rows:
        print(", ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
