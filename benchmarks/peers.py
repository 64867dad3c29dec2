"""Whole models against llama.cpp in turn: decode, prefill, decode far into a context; medians of alternated rounds.

    python -m benchmarks.peers --bench /path/to/llama-bench [--only 1b-q8_0,...] [--deep NAMES]

Adds each model to benchmarks/results/<machine>.json as soon as it is done, so a run can be broken off and taken up
with --only. Contenders take turns inside each round and the order rotates, so that a slow minute hits all of them;
rounds with and without strict pinning alternate too. How fast memory can be read is measured in every round. All six
models take 25 minutes on two Zen cores. Not here: the contenders (contenders.py, deep.py), what must come out
(bars.py), the README's table (table.py), speed through HTTP (serve.py).
"""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import llamacpp
from benchmarks.bandwidth import measured
from benchmarks.bars import BARRED, CACHES, DEPTH, MODES, bars, kind
from benchmarks.contenders import Contender, contenders
from benchmarks.deep import OurDepth, PeerDepth
from benchmarks.machine import BUSY_LIMIT, wait_for_quiet
from benchmarks.models import model_path
from benchmarks.record import load, save, stamp
from engine.gguf.reader import read_gguf

WHOLE = 5
"""Fewer rounds are a look, and no figure is kept of them."""
DEEP = ("smollm2", "1b-q4_k_m")
EXTRAS = ("smollm2", "1b-q4_0")  # also xllamacpp and ours on mapped weights; xllamacpp is slower on each of the rest
N_DEEP = 64
Key = tuple[str, str, str]  # mode, test, contender


class Match:
    """One model's rounds: samples by (mode, test, contender), the load before each round, the read bandwidth."""

    def __init__(self, path: Path, args: argparse.Namespace, extras: bool) -> None:
        self.path, self.args = path, args
        self.n_gen = 128 if path.stat().st_size < 200e6 else 64  # a turn of half a second at least
        self.samples: dict[Key, list[float]] = {}
        self.busy: list[float] = []
        self.gbps: list[float] = []
        self.about: dict[str, Any] = {}
        bench = llamacpp.binary("llama-bench", args.bench)
        reps = args.reps or (3 if self.n_gen == 128 else 1)
        self.players = {
            mode: contenders(
                path, n_gen=self.n_gen, threads=args.threads, strict=mode == "strict", reps=reps, bench=bench,
                extras=extras,
            )
            for mode in args.modes.split(",")
        }  # fmt: skip

    def play(self) -> None:
        for n in range(self.args.rounds):
            self._quiet(n, "decode and prefill")
            for mode, players in self.players.items():
                for player in _turned(players, n):
                    self._add(mode, player)
            self.gbps += measured(self.args.threads)

    def _quiet(self, n: int, what: str) -> None:
        self.busy.append(wait_for_quiet(self.args.patience))
        used = f"others used {self.busy[-1]:.0%} before it"
        print(f"{self.path.stem}: {what}, round {n + 1} of {self.args.rounds}, {used}", file=sys.stderr)

    def _add(self, mode: str, player: Contender) -> None:
        self.about[f"{player.name}, {mode}"] = player.about
        for test, values in player.measure().items():
            self.samples.setdefault((mode, test, player.name), []).append(median(values))

    def play_deep(self, kv_type: str) -> None:
        """Rounds at DEPTH: both engines stay open, asked in turn."""
        server = llamacpp.binary("llama-server", self.args.server)
        with ExitStack() as stack:
            sizes = (kv_type, DEPTH, self.args.threads)
            players: list[OurDepth | PeerDepth] = [stack.enter_context(OurDepth(self.path, *sizes))]
            if server:
                players.append(stack.enter_context(PeerDepth(server, self.path, *sizes)))
            for n in range(self.args.rounds):
                self._quiet(n, f"depth {DEPTH} with {kv_type}")
                for player in _turned(players, n):
                    self.about[f"{player.name}, depth {DEPTH}, {kv_type}"] = player.about
                    key = ("strict", f"tg{N_DEEP}@{kv_type}", player.name)
                    self.samples.setdefault(key, []).append(player.decode(N_DEEP))

    def result(self) -> dict[str, Any]:
        """What the results file keeps of this model."""
        n_bytes = bytes_per_token(self.path)
        table = rows(self.samples)
        out: dict[str, Any] = stamp(self.path) | {
            "rounds": self.args.rounds,
            "threads": self.args.threads,
            "quiet": max(self.busy, default=1.0) <= BUSY_LIMIT,
            "busy_before_round": [round(b, 3) for b in self.busy],
            "bytes_per_token": n_bytes,
            "rows": table,
            "contenders": self.about,
        }
        if self.gbps:
            read = median(self.gbps)
            mine = [r for r in table if r["contender"] == "colibri resident"]
            own = [r["median_ts"] for r in mine if kind(r["test"]) == "decode"]
            out |= {"read_gbps": round(read, 2), "best_read_gbps": round(max(self.gbps), 2)}
            out["decode_gbps"] = round(max(own) * n_bytes / 1e9, 2)
            out["bandwidth_share"] = round(max(own) * n_bytes / 1e9 / read, 3)
        return out


def _turned(players: Sequence[Any], n: int) -> list[Any]:
    turn = n % len(players)
    return [*players[turn:], *players[:turn]]


def bytes_per_token(path: Path) -> int:
    """What a decoded token reads: every weight but the embedding's, of which it is one row."""
    tensors = read_gguf(path).tensors
    apart = tensors["token_embd.weight"].n_bytes if "output.weight" in tensors else 0
    return sum(t.n_bytes for t in tensors.values()) - apart


def rows(samples: dict[Key, list[float]]) -> list[dict[str, Any]]:
    """One row per mode, test and contender; ours with the ratio to the fastest peer of that mode and test.

    xllamacpp knows no strict pinning: its one figure counts in both modes.
    """
    out: list[dict[str, Any]] = []
    for (mode, test, name), values in samples.items():
        row = {"mode": mode, "test": test, "contender": name, "median_ts": round(median(values), 2)}
        row["samples_ts"] = [round(v, 2) for v in values]
        rivals = [
            median(theirs)
            for (where, what, who), theirs in samples.items()
            if what == test and not who.startswith("colibri") and (where == mode or who == llamacpp.XLLAMACPP)
        ]
        if name.startswith("colibri") and rivals:
            row["ratio_to_fastest_peer"] = round(median(values) / max(rivals), 3)
        out.append(row)
    return sorted(out, key=lambda r: (r["mode"], r["test"], -r["median_ts"]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Colibri against llama.cpp, whole models, in turn.")
    parser.add_argument("--bench", help="a llama-bench binary (or PEER_BENCH, or PATH)")
    parser.add_argument("--server", help="a llama-server binary for the depth (or PEER_SERVER, or PATH)")
    parser.add_argument("--only", default=",".join(BARRED), help="models or files (default: %(default)s)")
    parser.add_argument("--deep", default=",".join(DEEP), help="those measured far into a context too, or none")
    parser.add_argument("--modes", default=",".join(MODES), help="default: as one starts them by hand; strict: pinned")
    parser.add_argument("--rounds", type=int, default=5, help="alternated rounds, fewer than 5 are not kept")
    parser.add_argument("--reps", type=int, default=0, help="repetitions in a turn (default: 3 small, 1 large model)")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a quiet machine per round")
    parser.add_argument("--json", action="store_true", help="print what the results file keeps")
    args = parser.parse_args()
    paths = {Path(name).stem: model_path(name) for name in args.only.split(",")}
    models = load("peers").get("models", {})
    for name, path in paths.items():
        match = Match(path, args, extras=name in EXTRAS)
        match.play()
        if name in args.deep.split(","):
            for kv_type in CACHES:
                match.play_deep(kv_type)
        result = match.result()
        models[name] = result
        if args.rounds >= WHOLE:
            kept = load("peers").get("models", {})
            print(f"{name} -> {save('peers', {'models': kept | {name: result}})}", file=sys.stderr)
        for row in result["rows"] if not args.json else []:
            ratio, who = row.get("ratio_to_fastest_peer", ""), row["contender"]
            print(f"{name:10s} {row['mode']:8s} {row['test']:10s} {who:18s} {row['median_ts']:8.1f} {ratio}")
    if args.json:
        print(json.dumps({name: models[name] for name in paths}, indent=1))
        return
    for bar in bars(models):
        print(bar.line())


if __name__ == "__main__":
    main()
