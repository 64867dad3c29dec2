"""Speed through the API: one streaming client against our server and llama.cpp's, in turn, on the same machine.

    python -m benchmarks.serve --server /path/to/llama-server [--only smollm2,1b-q4_k_m] [--json]

Adds to benchmarks/results/<machine>.json. Streamed chat, temperature 0.7, top_k 40, top_p 0.95. Every request begins
with words of its own, so that no prompt cache answers for the prefill. Our engine alone (tg128 of `colibri bench`)
takes its turn in every round: what the service costs is the ratio to it, at least 0.85. Not here: llama-bench
(peers.py).
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import llamacpp, ours
from benchmarks.client import Streamed, stream_chat
from benchmarks.contenders import run_bench
from benchmarks.machine import BUSY_LIMIT, pinned, wait_for_quiet
from benchmarks.models import model_path
from benchmarks.prompts import ORCHARD
from benchmarks.record import load, save, stamp

N_TOKENS = 128
ALONE = f"tg{N_TOKENS}"
LEAST_OF_ALONE = 0.85
WHOLE = 5
"""Fewer rounds are a look, and no figure is kept of them."""
SAMPLING = {"temperature": 0.7, "top_k": 40, "top_p": 0.95, "max_tokens": N_TOKENS, "ignore_eos": True}
Open = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Contender:
    """`open()` starts the server for a `with`; its value has a `url`."""

    name: str
    about: dict[str, str]
    open: Open


def question(n: int) -> dict[str, Any]:
    """The n-th request: about 190 tokens of prompt, a seed of its own."""
    words = f"Story number {n}. {ORCHARD}\n\nContinue this story in great detail."
    return {"messages": [{"role": "user", "content": words}], "seed": n, **SAMPLING}


def contenders(model: Path, args: argparse.Namespace, extras: bool) -> list[Contender]:
    """Ours and the native server; with `extras` also ours on mapped weights and xllamacpp."""
    sizes: dict[str, Any] = {"n_ctx": 2048, "n_threads": args.threads, "cpus": pinned(args.threads)}
    found = []
    for mode in ("resident", "mmap") if extras else ("resident",):
        about = {
            "version": ours.our_version(),
            "command": f"colibri serve --load-mode {mode} -c 2048 -t {args.threads}",
        }
        run = partial(ours.Server, model, **sizes, flags=["--load-mode", mode])
        found.append(Contender(f"colibri {mode}", about, run))
    server = llamacpp.binary("llama-server", args.server)
    if server:
        about = llamacpp.versions(server) | {"command": f"llama-server -c 2048 -t {args.threads} -np 1"}
        found.append(Contender("llama-server native", about, partial(llamacpp.Server, server, model, **sizes)))
    if extras and llamacpp.has_xllamacpp():
        about = llamacpp.versions(llamacpp.XLLAMACPP) | {"command": f"Server n_ctx 2048, {args.threads} threads"}
        found.append(Contender("xllamacpp", about, partial(llamacpp.Server, llamacpp.XLLAMACPP, model, **sizes)))
    return found


async def ask(url: str, first: int, n: int) -> list[Streamed]:
    """One warming request, then n measured ones, one after another."""
    await stream_chat(url, question(first) | {"max_tokens": 8})
    return [await stream_chat(url, question(first + 1 + i)) for i in range(n)]


def compete(model: Path, players: list[Contender], args: argparse.Namespace) -> dict[str, Any]:
    """Medians over rounds of every server and of our engine alone, and the busy share before each round."""
    rates: dict[str, list[float]] = {p.name: [] for p in players}
    waits: dict[str, list[float]] = {p.name: [] for p in players}
    alone: list[float] = []
    busy = []
    command = ours.command("bench", "-m", str(model), "--load-mode", "resident")
    for n in range(args.rounds):
        busy.append(wait_for_quiet(args.patience))
        turn = n % len(players)
        for player in [*players[turn:], *players[:turn]]:
            with player.open() as server:
                answers = asyncio.run(ask(server.url, 1000 * n, args.asks))
            rates[player.name].append(median(a.tokens_per_second for a in answers))
            waits[player.name].append(median(a.first_s for a in answers))
        alone += run_bench(command, N_TOKENS, args.threads, 1, n_prompt=0)[ALONE]
        used = f"others used {busy[-1]:.0%} before it"
        print(f"{model.stem}: round {n + 1} of {args.rounds} done, {used}", file=sys.stderr)
    rows = [
        {
            "contender": name,
            "median_ts": round(median(rates[name]), 2),
            "samples_ts": [round(r, 2) for r in rates[name]],
            "median_ttft_s": round(median(waits[name]), 4),
            "samples_ttft_s": [round(w, 4) for w in waits[name]],
        }
        for name in rates
    ]
    return {
        "quiet": max(busy) <= BUSY_LIMIT,
        "busy_before_round": [round(b, 3) for b in busy],
        "alone_ts": round(median(alone), 2),
        "alone_samples_ts": [round(ts, 2) for ts in alone],
        "rows": with_ratios(rows, median(alone)),
    }


def with_ratios(rows: list[dict[str, Any]], alone: float) -> list[dict[str, Any]]:
    """Our rows with their ratios to the fastest peer and to our engine alone."""
    rival = max((row["median_ts"] for row in rows if not row["contender"].startswith("colibri")), default=None)
    for row in rows:
        if row["contender"].startswith("colibri"):
            row["ratio_to_alone"] = round(row["median_ts"] / alone, 3)
            if rival:
                row["ratio_to_fastest_peer"] = round(row["median_ts"] / rival, 3)
    return rows


def show(name: str, found: dict[str, Any]) -> None:
    for row in found["rows"]:
        speed = f"{row['median_ts']:8.1f} tok/s  first piece {row['median_ttft_s'] * 1000:7.1f} ms"
        print(f"{name:10s} {row['contender']:22s} {speed}  {row.get('ratio_to_fastest_peer', '')}")
    own = next(row["ratio_to_alone"] for row in found["rows"] if "ratio_to_alone" in row)
    verdict = "holds" if own >= LEAST_OF_ALONE else "FAILS"
    print(f"{name:10s} served to {ALONE} alone: {own:.2f}, at least {LEAST_OF_ALONE} {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Streamed answers per second and time to the first piece.")
    parser.add_argument("--server", help="a llama-server binary (or PEER_SERVER, or PATH)")
    parser.add_argument("--rounds", type=int, default=5, help="fewer than 5 are not kept")
    parser.add_argument("--asks", type=int, default=2, help="measured requests inside one turn; their median counts")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a quiet machine per round")
    parser.add_argument("--only", default="smollm2,1b-q4_k_m", help="models or files (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print what the results file keeps")
    args = parser.parse_args()
    paths = {Path(name).stem: model_path(name) for name in args.only.split(",")}
    done = {}
    for name, path in paths.items():
        players = contenders(path, args, extras=name == "smollm2")
        found = stamp(path) | {
            "rounds": args.rounds,
            "threads": args.threads,
            "request": f"streamed chat, {N_TOKENS} tokens, about 190 of prompt, {SAMPLING}",
            "contenders": {p.name: p.about for p in players},
        }
        done[name] = found | compete(path, players, args)
        if args.rounds >= WHOLE:
            kept = load("serve").get("models", {})
            print(save("serve", {"models": kept | {name: done[name]}}), file=sys.stderr)
        if not args.json:
            show(name, done[name])
    if args.json:
        print(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
