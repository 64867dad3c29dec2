"""Rows a minute when 200 texts get one of eight labels each, by JSON schema: ours and llama-server's, in turn.

    python -m benchmarks.tagging --server /path/to/llama-server [--only smollm2,1b-q4_k_m] [--rounds 3] [--rows 200]

All rows have the same instruction, which both servers' prompt caches hold after a first wave of requests; the peer runs
at the `-np` that was fastest in a look before the rounds. Ours answers in two ways: `scored`, where the schema leaves
eight answers and their probabilities are compared, and `written`, where it is kept to token by token (top_k 1: greedy,
and drawn, so that nothing is scored). How often the two agree is told, and what the scored rate is of what reading the
new ids alone would allow (pp256 of `colibri bench` in the same round). Adds to benchmarks/results/<machine>.json. Not
here: the texts (tickets.py).
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import llamacpp, ours
from benchmarks.bars import Bar
from benchmarks.contenders import N_PROMPT, run_bench
from benchmarks.machine import BUSY_LIMIT, pinned, wait_for_quiet
from benchmarks.models import model_path
from benchmarks.record import load, save, stamp
from benchmarks.tickets import FORM, LABELS, messages

WHOLE, ROWS, LOOK = 3, 200, 48
"""Fewer rounds or rows are a look, and no figure is kept of them."""
N_CTX = 1024  # of each sequence
PEER = "llama-server"
GREEDY = {"scored": {"temperature": 0}, "written": {"temperature": 1.0, "top_k": 1}, PEER: {"temperature": 0}}
LEAST = {"smollm2": {"scored": 5.0, "written": 3.0}, "1b": {"scored": 2.5, "written": 2.0}}
LEAST_OF_READING = 0.8
Open = Callable[[], AbstractContextManager[Any]]


@dataclass
class Turn:
    """What one contender did with the rows of one round; `labels` in order of the rows, None for no label at all."""

    seconds: float
    labels: list[str | None] = field(default_factory=list)
    n_new: int = 0
    n_made: int = 0

    @property
    def rows_per_minute(self) -> float:
        return 60 * len(self.labels) / self.seconds


def body(n: int, way: str) -> dict[str, Any]:
    """The request for the n-th text."""
    return {"messages": messages(n), "response_format": FORM, "max_tokens": 32, **GREEDY[way]}


def label(answer: Any) -> str | None:
    """The label of an answer, None where it fits the schema in no way."""
    try:
        whole = json.loads(answer["choices"][0]["message"]["content"])
    except ValueError:
        return None
    is_right = isinstance(whole, dict) and list(whole) == ["label"] and whole["label"] in LABELS
    return str(whole["label"]) if is_right else None


def tag(url: str, way: str, rows: range, width: int) -> Turn:
    """As many other rows to warm every slot's cache, then all of `rows`, `width` at once; new ids no cache held."""
    ask = partial(llamacpp.post, f"{url}/v1/chat/completions")
    bodies = [body(n, way) for n in rows]
    with ThreadPoolExecutor(width) as pool:
        list(pool.map(ask, [body(rows.stop + i, way) for i in range(width)]))
        start = time.perf_counter()
        answers = list(pool.map(ask, bodies))
        turn = Turn(time.perf_counter() - start, [label(a) for a in answers])
    for usage in (a["usage"] for a in answers):
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        turn.n_new += usage["prompt_tokens"] - cached
        turn.n_made += usage["completion_tokens"]
    return turn


class Match:
    """One model's rounds."""

    def __init__(self, path: Path, args: argparse.Namespace) -> None:
        self.path, self.args = path, args
        self.sizes: dict[str, Any] = {"n_threads": args.threads, "cpus": pinned(args.threads)}
        self.turns: dict[str, list[Turn]] = {}
        self.reading: list[float] = []
        self.busy: list[float] = []
        self.server = llamacpp.binary(PEER, args.server)
        self.looks: dict[int, float] = {}
        self.np = 0

    def ours(self) -> ours.Server:
        flags = ["-np", str(self.args.parallel), "--max-queue", "64", "--load-mode", "resident"]
        return ours.Server(self.path, n_ctx=N_CTX, flags=[*flags, *self.args.flags.split()], **self.sizes)

    def peer(self, n: int) -> llamacpp.Server:
        assert self.server is not None
        return llamacpp.Server(self.server, self.path, n_ctx=N_CTX * n, n_parallel=n, **self.sizes)

    def play(self) -> None:
        if self.server:
            for n in self.args.np:
                with self.peer(n) as server:
                    self.looks[n] = tag(
                        server.url, PEER, range(1000, 1000 + min(LOOK, self.args.rows)), n
                    ).rows_per_minute
                print(f"{self.path.stem}: a look at -np {n}: {self.looks[n]:.0f} rows a minute", file=sys.stderr)
            self.np = max(self.looks, key=lambda n: self.looks[n])
        players: list[tuple[str, int, Open]] = [
            (way, 2 * self.args.parallel, self.ours) for way in ("scored", "written")
        ]
        if self.server:
            players.append((PEER, self.np, partial(self.peer, self.np)))
        command = ours.command("bench", "-m", str(self.path), "--load-mode", "resident")
        for n in range(self.args.rounds):
            self.busy.append(wait_for_quiet(self.args.patience))
            turn = n % len(players)
            for way, width, opened in [*players[turn:], *players[:turn]]:
                with opened() as server:
                    done = tag(server.url, way, range(self.args.rows), width)
                self.turns.setdefault(way, []).append(done)
                print(f"{self.path.stem}: round {n + 1}, {way}: {done.rows_per_minute:.0f}", file=sys.stderr)
            self.reading += run_bench(command, 0, self.args.threads, 1)[f"pp{N_PROMPT}"]

    def result(self) -> dict[str, Any]:
        """What the results file keeps of this model."""
        rates = {way: median(t.rows_per_minute for t in turns) for way, turns in self.turns.items()}
        first = {way: turns[0] for way, turns in self.turns.items()}
        rows = [
            {
                "contender": way, "rows_per_minute": round(rates[way], 1),
                "samples": [round(t.rows_per_minute, 1) for t in turns],
                "new_ids": round(turns[-1].n_new / len(turns[-1].labels), 1),
                "made_ids": round(turns[-1].n_made / len(turns[-1].labels), 2),
                "without_label": sum(x is None for t in turns for x in t.labels),
            } | ({"ratio": round(rates[way] / rates[PEER], 2)} if PEER in rates and way != PEER else {})
            for way, turns in self.turns.items()
        ]  # fmt: skip
        new = first["scored"].n_new / len(first["scored"].labels)
        return stamp(self.path) | {
            "version": ours.our_version(), "rounds": self.args.rounds, "n_rows": self.args.rows,
            "threads": self.args.threads, "parallel": self.args.parallel, "flags": self.args.flags,
            "quiet": max(self.busy) <= BUSY_LIMIT, "busy_before_round": [round(b, 3) for b in self.busy],
            "peer": llamacpp.versions(self.server) if self.server else {}, "peer_np": self.np,
            "peer_looks": {str(n): round(rate, 1) for n, rate in self.looks.items()},
            "rows": rows, "pp_ts": round(median(self.reading), 1),
            "of_reading": round(rates["scored"] / 60 * new / median(self.reading), 3),
            "agreement": same(first["scored"], first["written"]),
            "peer_agreement": same(first["written"], first[PEER]) if PEER in first else None,
            "is_repeatable": all(t.labels == turns[0].labels for turns in self.turns.values() for t in turns),
        }  # fmt: skip


def same(a: Turn, b: Turn) -> float:
    """The share of rows with the same label."""
    return round(sum(x == y for x, y in zip(a.labels, b.labels, strict=True)) / len(a.labels), 3)


def bars(name: str, found: dict[str, Any]) -> list[Bar]:
    """What must come out for a model."""
    least = LEAST["smollm2" if name == "smollm2" else "1b"]
    ratios = {row["contender"]: row.get("ratio") for row in found["rows"]}
    out = [Bar(f"{name}: rows a minute, {way}, to the peer", ratios[way], least[way]) for way in least]
    return [*out, Bar(f"{name}: scored, of what reading allows", found["of_reading"], LEAST_OF_READING)]


def _counts(words: str) -> list[int]:
    if not all(word.isdigit() and int(word) for word in words.split(",")):
        raise argparse.ArgumentTypeError(f"{words!r} is no list of counts such as 1,4,8")
    return [int(word) for word in words.split(",")]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="benchmarks.tagging", description="Rows a minute of a tagging batch, in turn.")
    made.add_argument("--server", help="a llama-server binary (or PEER_SERVER, or PATH)")
    made.add_argument("--only", default="smollm2,1b-q4_k_m", help="models or files (default: %(default)s)")
    made.add_argument("--rounds", type=int, default=WHOLE)
    made.add_argument("--rows", type=int, default=ROWS)
    made.add_argument("--parallel", type=int, default=16, help="our sequences at once (default: %(default)s)")
    made.add_argument("--flags", default="", help="further flags of our server, in one word")
    made.add_argument("--np", type=_counts, default="1,2,4,8,16", help="the peer's, each tried before the rounds")
    made.add_argument("-t", "--threads", type=int, default=2)
    made.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a quiet machine per round")
    made.add_argument("--json", action="store_true", help="print what the results file keeps")
    return made


def main(argv: list[str] | None = None) -> None:
    args = parser().parse_args(argv)
    done = {}
    for name in args.only.split(","):
        path = model_path(name)
        match = Match(path, args)
        match.play()
        found = done[path.stem if name.endswith(".gguf") else name] = match.result()
        if args.rounds >= WHOLE and args.rows >= ROWS:
            print(save("tagging", {"models": load("tagging").get("models", {}) | {name: found}}), file=sys.stderr)
        for row in found["rows"] if not args.json else []:
            new, made = f"{row['new_ids']:.0f} new ids", f"{row['made_ids']:.1f} made"
            print(f"{name:10s} {row['contender']:14s} {row['rows_per_minute']:8.1f} rows/min  {new}, {made}")
        for bar in bars(name, found) if not args.json else []:
            print(bar.line())
        if not args.json:
            print(f"{name:10s} scored and written agree in {found['agreement']:.1%} of the rows")
    if args.json:
        print(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
