"""How fast memory can be read here by the engine's own threads: 32-byte loads over 512 MiB, the bound of decoding.

    python -m benchmarks.bandwidth [-t 2] [--json]

It runs as an op on a team, so that waking, meeting and pinning cost what they cost a decoding step. The median of many
passes counts: decoding cannot choose its moments either. Not here: what the engine reaches (peers.py, kernels.py).
"""

import argparse
import json
import subprocess
import sys
import time
from statistics import median

from benchmarks.machine import pinned
from benchmarks.ours import ROOT
from benchmarks.readers import chain, read_all
from engine.kernels.program import Buffer, Program
from engine.kernels.step import N_ROWS
from engine.kernels.team import Team

import numpy as np  # isort: skip

MIB = 1 << 20
PROBE_BYTES = 512 * MIB
PASSES = 25

def read_gbps(threads: int, n_bytes: int = PROBE_BYTES, passes: int = PASSES, repeat: int = 1) -> list[float]:
    """10^9 bytes per second of each pass (of `repeat` turns); the calling thread stays pinned: call it in a child."""
    area, sums = Buffer(n_bytes), Buffer(64 * threads)
    area.view(np.uint8)[:] = 1  # pages never written are all one page of zeros
    program = Program()
    program.add(read_all, area.address, n_bytes, sums.address, repeat)
    recorded = program.finish()
    team = Team(threads, pinned(threads))
    team.words[N_ROWS // 8] = 1
    rates = []
    for n in range(passes + 2):
        start = time.perf_counter()
        team.run(recorded, threads)
        if n >= 2:
            rates.append(n_bytes * repeat / (time.perf_counter() - start) / 1e9)
    team.stop()
    return rates


def measured(threads: int) -> list[float]:
    """The same in a process of its own, as the benchmarks ask for it between two contenders."""
    words = [sys.executable, "-m", "benchmarks.bandwidth", "-t", str(threads), "--json"]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return [float(rate) for rate in json.loads(done.stdout)["gbps"]]


def clock_ghz(links: int = 1_000_000, tries: int = 100) -> float:
    """Cycles per second of one busy core, 10^9: a chain of multiply-adds, 4 cycles a link; the best try counts.

    A try takes a millisecond, so that calling it costs nothing and another process seldom comes between.
    """
    room, program, team = Buffer(64), Program(), Team(1)
    program.add(chain, links, room.address)
    recorded = program.finish()
    seconds = []
    for _ in range(tries):
        start = time.thread_time()
        team.run(recorded, 1)
        seconds.append(time.thread_time() - start)
    return 4 * links / min(seconds) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description="Read memory as fast as decoding could.")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rates = read_gbps(args.threads)
    if args.json:
        print(json.dumps({"threads": args.threads, "gbps": [round(r, 3) for r in rates]}))
    else:
        print(f"{args.threads} threads: median {median(rates):.1f}, best {max(rates):.1f} GB/s of {len(rates)} passes")


if __name__ == "__main__":
    main()
