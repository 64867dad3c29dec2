"""Every quant type's kernels at a model's shapes, run as a model runs them: recorded ops, a team, chunks, barriers.

    python -m benchmarks.kernels [--types Q4_K,...] [--json]     adds to benchmarks/results/<machine>.json

    decode    one row: GB/s of weights from L2 (one thread) and from memory (one and two), against plain reading
    few       2, 4, 8 rows from memory, two threads: tokens per second to those of one row
    prefill   64 and 256 rows: 10^9 multiply-adds per second against the port count (limits.py)

Activations are norms of rows with a few outliers, so that about a seventh of the blocks carries a fine half, as in a
real model (kernels/act.py); its work is not counted as multiply-adds. Not here: whole models (peers.py).
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.bandwidth import clock_ghz, measured
from benchmarks.blocks import MADE, random_blocks
from benchmarks.limits import macs_per_cycle
from benchmarks.machine import BUSY_LIMIT, CPUS, describe, pinned, wait_for_quiet
from benchmarks.ours import ROOT, our_version
from benchmarks.record import save, today
from engine.cache.kv import KvCache
from engine.kernels.isa import ISA
from engine.kernels.pack import pack_panels
from engine.kernels.program import Buffer, Program, Recorded
from engine.kernels.step import N_OUT, N_ROWS
from engine.kernels.team import Team
from engine.models.parts import Parts
from engine.models.shape import DecoderShape, RopeScaling
from engine.quants.registry import TYPES
from engine.weights.tensor import Matrix, Vector

SHAPES = {"attn": (2048, 2048), "ffn up": (2048, 8192), "ffn down": (8192, 2048), "output": (2048, 49152)}  # k, n
FROM_MEMORY = 256 << 20  # bytes of different weights in one pass, past any cache of a machine of this kind
IN_L2 = 384 << 10
FEW, TILES, PASSES = (2, 4, 8), (64, 256), 7
FINE_SHARE, FINE_TIMES = 0.14, 3.0  # how many blocks hold an outlier, how much larger than the others
SAMPLE = 64  # rows that are random; the others repeat them


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of a type, rows of k, as panels or as a file has them; `n` rows lie at each of `addresses`."""

    type_name: str
    k: int
    n: int
    addresses: tuple[int, ...]
    body: Any
    memory: Buffer

    @property
    def n_bytes(self) -> int:
        """Of one matrix."""
        return self.n * TYPES[self.type_name].row_bytes(self.k)

    def matrices(self) -> list[Matrix]:
        kind = TYPES[self.type_name]
        quant = importlib.import_module(kind.module)
        return [Matrix(f"at {a:x}", kind, quant, self.k, self.n, a, a, self.body) for a in self.addresses]


def weights(type_name: str, k: int, n: int, copies: int, *, packed: bool = True) -> Weights:
    """`copies` matrices of n rows, a multiple of 8, at different addresses."""
    kind = TYPES[type_name]
    quant = importlib.import_module(kind.module)
    row, few = kind.row_bytes(k), min(n, SAMPLE)
    source = random_blocks(type_name, few * k, k**-0.5, np.random.default_rng(0))
    sample = Buffer(few * row)
    sample.view(np.uint8)[:] = source
    if packed:
        pack_panels(quant.pack.address, source.ctypes.data, k // kind.items, sample.address, 8 * row, few // 8)
    memory = Buffer(copies * n * row)
    whole = memory.view(np.uint8)
    for at in range(0, len(whole), few * row):
        part = whole[at : at + few * row]
        part[:] = sample.view(np.uint8)[: len(part)]
    addresses = tuple(memory.address + i * n * row for i in range(copies))
    return Weights(type_name, k, n, addresses, quant.panels if packed else quant.rows, memory)


def shape_of(k: int, n: int) -> DecoderShape:
    """A decoder of which only the width matters."""
    return DecoderShape("llama", 1, k, 64, 1, 1, 64, 64, 64, 1e4, RopeScaling(), 1e-5, 256, n, False)


class Run:
    """Products of `rows` activations with each matrix in turn, by `threads` threads."""

    def __init__(self, w: Weights, rows: int, threads: int, times: int = 1) -> None:
        matrices = w.matrices()
        shape = shape_of(w.k, 64)
        parts = Parts(shape, matrices, KvCache(256, 1, 1, 64, "f16", "f16"), rows, 1, threads)
        self._kept = (parts, matrices, w)
        self.bytes, self.macs = w.n_bytes * len(matrices) * times, w.k * w.n * rows * len(matrices) * times
        self.team = Team(threads, pinned(threads))
        self.threads = threads
        for word in (N_ROWS, N_OUT):
            self.team.words[word // 8] = rows
        ones = Buffer(w.k * 4)
        ones.view(np.float32)[:] = 1
        parts.x.view(np.float32)[:] = activations(rows, w.k).reshape(-1)
        act = parts.norm(Vector("ones", w.k, ones.address), *matrices)
        self.team.run(parts.program.finish(), threads)
        parts.program = Program()
        y = Buffer(rows * w.n * 4)
        for _ in range(times):
            for matrix in matrices:
                parts.matmul(matrix, act, y, w.n)
                parts.program.barrier()
        self._program: Recorded = parts.program.finish()
        self.y = y.view(np.float32).reshape(rows, w.n)

    def seconds(self) -> float:
        """The median of PASSES, after two that warm up; of one thread its CPU time, which others cannot lengthen."""
        clock = time.thread_time if self.threads == 1 else time.perf_counter
        found = []
        for _ in range(PASSES + 2):
            start = clock()
            self.team.run(self._program, self.threads)
            found.append(clock() - start)
        assert np.isfinite(self.y).all() and self.y.any(), "no numbers came out"
        return median(found[2:])

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.team.stop()
        os.sched_setaffinity(0, CPUS)  # thread 0 of a team is its caller


def activations(rows: int, k: int) -> np.ndarray:
    """Float32 (rows, k): noise, FINE_SHARE of the blocks of 32 FINE_TIMES as large."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((rows, k // 32, 32), np.float32)
    x *= np.where(rng.random((rows, k // 32, 1)) < FINE_SHARE, FINE_TIMES, 1.0).astype(np.float32)
    return x.reshape(rows, k)


def gbps(w: Weights, threads: int, times: int = 1) -> float:
    with Run(w, 1, threads, times) as run:
        return run.bytes / run.seconds() / 1e9


def measure(type_name: str, name: str, threads: Sequence[int]) -> dict[str, Any]:
    """All figures of a type at a shape."""
    k, n = SHAPES[name]
    row = TYPES[type_name].row_bytes(k)
    out: dict[str, Any] = {"type": type_name, "shape": name, "k": k, "n": n}
    near = weights(type_name, k, max(8, IN_L2 // row // 8 * 8), 1)
    out["l2_gbps"] = round(gbps(near, 1, times=max(1, FROM_MEMORY // 4 // near.n_bytes)), 1)
    copies = max(1, FROM_MEMORY // (n * row))
    far = weights(type_name, k, n, copies)
    out["memory_gbps"] = {t: round(gbps(far, t), 1) for t in threads}
    most = max(threads)
    with Run(far, 1, most) as run:
        alone = run.seconds()
    out["few"] = {}
    for rows in FEW:
        with Run(far, rows, most) as run:
            out["few"][rows] = round(rows * alone / run.seconds(), 2)
    out["mapped_gbps"] = {most: round(gbps(weights(type_name, k, n, copies, packed=False), most), 1)}
    if name != "output":  # of a prompt only the last row has logits
        one = weights(type_name, k, n, 1)
        out["prefill_gmacs"] = {}
        for rows in TILES:
            for t in threads:
                with Run(one, rows, t) as run:
                    out["prefill_gmacs"][f"{rows} rows, {t} threads"] = round(run.macs / run.seconds() / 1e9, 1)
    return out


def show(row: dict[str, Any], read: dict[int, float], limit: dict[str, tuple[float, str]]) -> str:
    """One line of the table."""
    memory = "  ".join(f"{t}t {v:5.1f} ({v / read[t]:3.0%})" for t, v in row["memory_gbps"].items())
    few = " ".join(f"{n}:{v:4.2f}" for n, v in row["few"].items())
    text = f"{row['type']:6s} {row['shape']:9s} L2 {row['l2_gbps']:5.1f}  {memory}  "
    text += f"mapped {max(row['mapped_gbps'].values()):5.1f}  few {few}"
    if "prefill_gmacs" in row:
        cells = row["prefill_gmacs"]
        text += "  GMAC/s " + " ".join(f"{v:.0f}" for v in cells.values())
        if row["type"] in limit:
            most, why = limit[row["type"]]
            alone = max(v for name, v in cells.items() if name.endswith(" 1 threads"))
            text += f"  {alone / most:3.0%} of {most:.0f} ({why})"
    return text


def child(type_name: str, shapes: Sequence[str], threads: Sequence[int]) -> list[dict[str, Any]]:
    """A type measured in a process of its own: its threads stay pinned and its memory is given back."""
    words = ["--types", type_name, "--shapes", ",".join(shapes), "-t", ",".join(map(str, threads)), "--child"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kernels", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise SystemExit(f"{type_name} could not be measured; its process ended with code {done.returncode}")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def main() -> None:
    here = [name for name in TYPES if name in MADE and name != "F32"]
    parser = argparse.ArgumentParser(description="Kernels by type and shape, against memory and arithmetic.")
    parser.add_argument("--types", default=",".join(here), help="comma-separated (default: %(default)s)")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="comma-separated (default: %(default)s)")
    parser.add_argument("-t", "--threads", default="1,2")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds to wait for a quiet machine per type")
    parser.add_argument("--json", action="store_true", help="print what the results file keeps")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    threads = [int(t) for t in args.threads.split(",")]
    types, shapes = args.types.split(","), args.shapes.split(",")
    if unknown := [t for t in types if t not in here] + [s for s in shapes if s not in SHAPES]:
        raise SystemExit(f"{unknown[0]} is neither a type ({', '.join(here)}) nor a shape ({', '.join(SHAPES)})")
    if args.child:
        print(json.dumps([measure(types[0], name, threads) for name in shapes]))
        return
    ghz, amd = clock_ghz(), "AMD" in describe()["cpu"]
    read = {t: round(median(measured(t)), 2) for t in threads}
    found = {name: macs_per_cycle(name, ISA.level, amd) for name in types}
    # A fine half doubles a block's work.
    limit = {name: (per * ghz / (1 + FINE_SHARE), why) for name, (per, why) in
             ((name, pair) for name, pair in found.items() if pair)}  # fmt: skip
    print(f"{ISA.cpu}, {ISA.level}, {ghz:.2f} GHz; reading: {read} GB/s by threads", file=sys.stderr)
    rows, busy = [], []
    for name in types:
        busy.append(wait_for_quiet(args.patience))
        for row in child(name, shapes, threads):
            row["memory_gbps"] = {int(t): v for t, v in row["memory_gbps"].items()}
            rows.append(row)
            if not args.json:
                print(show(row, read, limit), flush=True)
    content = {
        "date": today(), "version": our_version(), "isa": ISA.level, "clock_ghz": round(ghz, 2),
        "read_gbps": read, "fine_share": FINE_SHARE, "quiet": max(busy) <= BUSY_LIMIT,
        "limit_gmacs": {name: {"one core": round(most, 1), "scarce": why} for name, (most, why) in limit.items()},
        "rows": rows,
    }  # fmt: skip
    if types == here and shapes == list(SHAPES):  # a part is a look, and no figure is kept of it
        print(save("kernels", content), file=sys.stderr)
    if args.json:
        print(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
