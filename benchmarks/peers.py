"""The whole model against its peers in turn: decode (tg64) and prefill (pp256), pinned, medians of alternated rounds.

    python -m benchmarks.peers --bench /path/to/llama-bench       writes benchmarks/results/<machine>.json

Contenders take turns inside each round and the order rotates, so that a slow minute hits all of them. A round whose
machine was not quiet is marked. Not here: the table of the README (table.py), speed through HTTP (serve.py).
"""

import argparse
import datetime
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import llamacpp, ours
from benchmarks.machine import BUSY_LIMIT, describe, machine_name, pin_self, pinned, wait_for_quiet
from benchmarks.model import digest, smollm2

RESULTS = Path(__file__).parent / "results"
N_GEN, N_PROMPT = 64, 256
TESTS = (f"tg{N_GEN}", f"pp{N_PROMPT}")


@dataclass(frozen=True, slots=True)
class Contender:
    """`measure(n_threads)` gives tokens/s samples per test; `about` is what the results file says of it."""

    name: str
    ours: bool
    about: dict[str, str]
    measure: Callable[[int], dict[str, list[float]]]


def run_bench(command: Sequence[str], n_threads: int, reps: int) -> dict[str, list[float]]:
    """llama-bench and `colibri bench` take the same flags and answer with the same fields."""
    sizes = ["-p", str(N_PROMPT), "-n", str(N_GEN), "-t", str(n_threads), "-r", str(reps), "-o", "json"]
    done = subprocess.run(
        [*command, *sizes],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=partial(pin_self, pinned(n_threads)),
    )
    return {_test(row): [float(ts) for ts in row["samples_ts"]] for row in json.loads(done.stdout)}


def _test(row: dict[str, Any]) -> str:
    return f"pp{row['n_prompt']}" if row["n_gen"] == 0 else f"tg{row['n_gen']}"


def run_xllamacpp(model: Path, n_threads: int, reps: int) -> dict[str, list[float]]:
    """The package has no bench; its server's own timings leave HTTP out. The first request warms it."""
    ids = [(i * 7919 + 11) % 49152 for i in range(N_PROMPT)]
    samples: dict[str, list[float]] = {name: [] for name in TESTS}
    with llamacpp.Server(llamacpp.XLLAMACPP, model, n_threads=n_threads, cpus=pinned(n_threads)) as server:
        for rep in range(reps + 1):
            prefill = server.complete(ids, 1)["timings"]["prompt_per_second"]
            decode = server.complete(ids[:1], N_GEN + 1, ignore_eos=True, top_k=1)["timings"]["predicted_per_second"]
            if rep:
                samples[TESTS[0]].append(decode)
                samples[TESTS[1]].append(prefill)
    return samples


def contenders(model: Path, args: argparse.Namespace) -> list[Contender]:
    """Ours in both load modes, and every peer that is here."""
    found = []
    for mode in ("resident", "mmap"):
        command = ours.command("bench", "-m", str(model), "--load-mode", mode)
        about = {"version": ours.our_version(), "command": f"colibri bench --load-mode {mode}"}
        found.append(Contender(f"colibri {mode}", True, about, partial(run_bench, command, reps=args.reps)))
    bench = llamacpp.binary("llama-bench", args.bench)
    if bench:
        for flags in args.bench_flags or [""]:
            command = [bench, "-m", str(model), *flags.split()]
            about = llamacpp.versions(bench) | {"command": f"llama-bench {flags}".strip()}
            name = f"llama.cpp native {flags}".strip()
            found.append(Contender(name, False, about, partial(run_bench, command, reps=args.reps)))
    if llamacpp.has_xllamacpp():
        about = llamacpp.versions(llamacpp.XLLAMACPP) | {"command": "Server timings, greedy"}
        found.append(Contender("xllamacpp", False, about, partial(run_xllamacpp, model, reps=args.reps)))
    return found


def compete(
    players: Sequence[Contender], threads: Sequence[int], n_rounds: int, patience_s: float
) -> tuple[dict[tuple[str, str, int], list[float]], list[float]]:
    """Samples per (contender, test, threads): one median per round; and the busy share before each round."""
    samples: dict[tuple[str, str, int], list[float]] = {}
    busy = []
    for n in range(n_rounds):
        busy.append(wait_for_quiet(patience_s))
        turn = n % len(players)
        for n_threads in threads:
            for player in [*players[turn:], *players[:turn]]:
                for test, values in player.measure(n_threads).items():
                    samples.setdefault((player.name, test, n_threads), []).append(median(values))
        print(f"round {n + 1} of {n_rounds} done, others used {busy[-1]:.0%} before it", file=sys.stderr)
    return samples, busy


def rows(players: Sequence[Contender], samples: dict[tuple[str, str, int], list[float]]) -> list[dict[str, Any]]:
    """One row per contender, test and thread count; ours with the ratio to the fastest peer of that row."""
    out: list[dict[str, Any]] = []
    for (name, test, n_threads), values in samples.items():
        rivals = [
            median(samples[p.name, test, n_threads])
            for p in players
            if not p.ours and (p.name, test, n_threads) in samples
        ]
        is_ours = any(p.ours for p in players if p.name == name)
        row = {"contender": name, "test": test, "threads": n_threads, "median_ts": round(median(values), 2)}
        row["samples_ts"] = [round(v, 2) for v in values]
        if is_ours and rivals:
            row["ratio_to_fastest_peer"] = round(median(values) / max(rivals), 3)
        out.append(row)
    return sorted(out, key=lambda r: (r["test"], -r["threads"], -r["median_ts"]))


def save(section: str, content: Any) -> Path:
    """Put one section into this machine's results file; other sections stay."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{machine_name()}.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(kept | {"machine": describe(), section: content}, indent=1) + "\n")
    return path


def stamp(model: Path) -> dict[str, str]:
    """What every section says first: when, and of which file."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"date": today, "model": model.name, "model_sha256": digest(model)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Colibri against llama.cpp, whole model, in turn.")
    parser.add_argument("--bench", help="a llama-bench binary (or PEER_BENCH, or PATH)")
    parser.add_argument("--bench-flags", action="append", help="a set of llama-bench flags, e.g. '-fa 1'; repeatable")
    parser.add_argument("--rounds", type=int, default=5, help="alternated rounds, at least 5 for a figure")
    parser.add_argument("--reps", type=int, default=3, help="repetitions inside one turn; their median counts")
    parser.add_argument("-t", "--threads", default="2,1", help="thread counts, comma-separated")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a quiet machine per round")
    parser.add_argument("-m", "--model", type=Path, default=None)
    args = parser.parse_args()
    model = args.model or smollm2()
    players = contenders(model, args)
    samples, busy = compete(players, [int(t) for t in args.threads.split(",")], args.rounds, args.patience)
    table = rows(players, samples)
    content = stamp(model) | {
        "rounds": args.rounds,
        "quiet": max(busy) <= BUSY_LIMIT,
        "busy_before_round": [round(b, 3) for b in busy],
        "contenders": {p.name: p.about for p in players},
        "rows": table,
    }
    print(save("peers", content), file=sys.stderr)
    for row in table:
        ratio = row.get("ratio_to_fastest_peer")
        print(f"{row['test']:6s} t{row['threads']} {row['contender']:28s} {row['median_ts']:9.1f} {ratio or '':>6}")


if __name__ == "__main__":
    main()
