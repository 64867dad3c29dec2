"""What attention costs by depth and by the type of keys and values: its ops alone, over a made cache.

    python -m benchmarks.attention [--only 1b,smollm2] [-d 1024,4096,16384] [-k f16,q8_0,q4_0] [-t 2] [--json]
                                   adds to benchmarks/results/<machine>.json when all of five rounds are measured

    decode    one row at a depth: milliseconds a token spends in the attention of all layers, GB/s of cache, and what
              that is of plain reading (bandwidth.py)
    prompt    128 rows at a depth: milliseconds per id, 10^9 multiply-adds per second

Types take turns, round after round; medians count. Not here: whole models (`colibri bench -d`), peers (deep.py).
"""

import argparse
import json
import sys
import time
from statistics import median
from typing import Any

import numpy as np

from benchmarks.bandwidth import measured
from benchmarks.machine import BUSY_LIMIT, pinned, wait_for_quiet
from benchmarks.ours import our_version
from benchmarks.record import save, today
from engine.cache.kv import KvCache
from engine.cache.layout import KV_TYPES
from engine.kernels import step
from engine.kernels.attention import attend, kv_module, layer_block, parts_bytes, scratch_bytes
from engine.kernels.merge import merged
from engine.kernels.program import Buffer, Program, Recorded
from engine.kernels.team import Team

SHAPES = {"1b": (32, 8, 64, 16), "smollm2": (9, 3, 64, 30)}  # heads, kv heads, head_dim, layers
ROWS, TOKENS, WHOLE = 128, 16, 5


class Layers:
    """The attention of all layers of a shape over one sequence of made keys and values."""

    def __init__(self, kind: str, shape: tuple[int, int, int, int], depth: int, threads: int) -> None:
        self.n_heads, self.n_kv, self.head_dim, self.n_layers = shape
        self.kv = KvCache(depth + ROWS, self.n_layers, self.n_kv, self.head_dim, kind, kind)
        self.sequence = self.kv.open()
        self.sequence.reserve(depth + ROWS)
        self._fill(kind)
        self.team = Team(threads, pinned(threads))
        self.positions, self.pages = np.zeros(ROWS, np.int64), np.full(ROWS, self.sequence.address, np.int64)
        self.team.words[[step.POSITIONS // 8, step.SEEN // 8]] = self.positions.ctypes.data
        self.team.words[step.PAGES // 8] = self.pages.ctypes.data
        self.program = self._record(kind, threads)

    def _fill(self, kind: str) -> None:
        """One kv head's part of a page, written position by position, copied everywhere."""
        module, part = kv_module(kind), np.zeros(self.kv.head_bytes, np.uint8)
        x = np.random.default_rng(0).standard_normal((2, step.PAGE, self.head_dim)).astype(np.float32)
        for r in range(step.PAGE):
            module.put_k(x[0, r].ctypes.data, self.head_dim, r, part.ctypes.data)
            module.put_v(x[1, r].ctypes.data, self.head_dim, r, part.ctypes.data + self.kv.k_bytes)
        for page in self.sequence.pages:
            self.kv.pools[0].page(page).reshape(-1, self.kv.head_bytes)[:] = part

    def _record(self, kind: str, threads: int) -> Recorded:
        module, program, width = kv_module(kind), Program(), self.n_heads * self.head_dim
        ld, tiles = width + 2 * self.n_kv * self.head_dim, self.kv.n_pages
        qkv, parts = Buffer(ROWS * ld * 4), Buffer(parts_bytes(ROWS, tiles, self.n_heads, self.head_dim))
        room = Buffer(threads * scratch_bytes(self.n_heads, self.n_kv, self.head_dim))
        out, line = Buffer(max(ROWS, threads) * width * 4), Buffer(threads * width * 4)
        qkv.view(np.float32)[:] = np.random.default_rng(1).standard_normal(qkv.n_bytes // 4) * 0.125
        self.kept: list[Buffer] = [qkv, parts, room, out, line]
        for layer in range(self.n_layers):
            block = layer_block(
                ld, self.n_heads, self.n_kv, self.head_dim, layer * self.kv.layer_bytes, self.kv.head_bytes,
                self.kv.k_bytes,
            )  # fmt: skip
            self.kept.append(block)
            program.add(
                attend, qkv.address, block.address, module.prepare, module.scores, module.mix, parts.address, tiles,
                room.address, counter=True,
            )  # fmt: skip
            program.barrier()
            program.add(
                merged, parts.address, tiles, block.address, width, out.address, 0, width * 4, line.address, width * 4
            )
            program.barrier()
        return program.finish()

    def seconds(self, first: int, n: int) -> float:
        """One step of n rows from position `first` on."""
        self.positions[:n] = np.arange(first, first + n)
        self.team.words[step.N_ROWS // 8] = n
        start = time.perf_counter()
        assert self.team.run(self.program, self.team.size)
        return time.perf_counter() - start

    def decode(self, depth: int) -> dict[str, float]:
        """Of one token: milliseconds, GB/s."""
        s = median(self.seconds(depth, 1) for _ in range(TOKENS))
        return {"ms": s * 1e3, "gb_per_s": (depth + 1) * self.kv.pools[0].page_bytes / step.PAGE / s / 1e9}

    def prompt(self, depth: int) -> dict[str, float]:
        """Of ROWS ids behind `depth` others: milliseconds per id, 10^9 multiply-adds per second."""
        s = self.seconds(depth, ROWS)
        macs = self.n_layers * self.n_heads * self.head_dim * ROWS * (2 * depth + ROWS + 1)
        return {"ms": s * 1e3 / ROWS, "gmac_per_s": macs / s / 1e9}


def rounds_of(shape: str, args: argparse.Namespace) -> dict[str, Any]:
    """Everything about one shape, as the results file keeps it."""
    layers = {kind: Layers(kind, SHAPES[shape], max(args.depths), args.threads) for kind in args.kinds}
    samples: dict[tuple[str, int, str], list[dict[str, float]]] = {}
    busy, reads = [], []
    for n in range(args.rounds):
        busy.append(wait_for_quiet(args.patience))
        reads.append(median(measured(args.threads)))
        print(f"{shape}: round {n + 1}, others used {busy[-1]:.0%} before it", file=sys.stderr)
        for depth in args.depths:
            for kind, it in list(layers.items())[:: 1 if n % 2 == 0 else -1]:
                samples.setdefault(("decode", depth, kind), []).append(it.decode(depth))
                samples.setdefault(("prompt", depth, kind), []).append(it.prompt(depth))
    rows: list[dict[str, Any]] = []
    for (what, depth, kind), found in samples.items():
        row = {key: round(median(one[key] for one in found), 3) for key in found[0]}
        if what == "decode":
            row["share_of_read"] = round(row["gb_per_s"] / median(reads), 3)
        rows.append({"what": what, "depth": depth, "type": kind, **row})
    for it in layers.values():
        it.team.stop()
    return {
        "date": today(), "version": our_version(), "rounds": args.rounds, "threads": args.threads,
        "quiet": max(busy) <= BUSY_LIMIT, "busy_before_round": [round(b, 3) for b in busy],
        "read_gb_per_s": round(median(reads), 1), "rows": rows,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure attention by depth and by type of keys and values.")
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--only", type=names, default=list(SHAPES), help="shapes, of 1b and smollm2")
    parser.add_argument("-d", "--depths", type=lambda text: [int(d) for d in names(text)], default=[1024, 4096, 16384])
    parser.add_argument("-k", "--kinds", type=names, default=["f16", "q8_0", "q4_0"], help=", ".join(KV_TYPES))
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=WHOLE)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a quiet machine each round")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not set(args.only) <= SHAPES.keys() or not set(args.kinds) <= KV_TYPES.keys():
        parser.error(f"shapes are {', '.join(SHAPES)}; types are {', '.join(KV_TYPES)}")
    found = {shape: rounds_of(shape, args) for shape in args.only}
    if args.rounds >= WHOLE and set(found) == set(SHAPES):
        print(f"kept in {save('attention', {'models': found})}", file=sys.stderr)
    if args.json:
        print(json.dumps(found, indent=1))
        return
    for shape, section in found.items():
        for row in section["rows"]:
            rate = f"{row['gmac_per_s']:8.1f} GMAC/s" if row["what"] == "prompt" else (
                f"{row['gb_per_s']:8.1f} GB/s, {row['share_of_read']:.0%} of plain reading")  # fmt: skip
            print(f"{shape:<9}{row['what']:<8}{row['type']:<6}{row['depth']:>7} deep{row['ms']:>10.3f} ms{rate}")


if __name__ == "__main__":
    main()
