"""Speed through the API: one streaming client against our server and llama.cpp's, in turn, on the same machine.

    python -m benchmarks.serve --server /path/to/llama-server     adds to benchmarks/results/<machine>.json

Streamed chat, temperature 0.7, top_k 40, top_p 0.95. Every request begins with words of its own, so that no prompt
cache answers for the prefill. Not here: the engine without HTTP (peers.py).
"""

import argparse
import asyncio
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
from benchmarks.machine import BUSY_LIMIT, pinned, wait_for_quiet
from benchmarks.model import smollm2
from benchmarks.peers import save, stamp
from benchmarks.prompts import ORCHARD

N_TOKENS = 128
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


def contenders(model: Path, args: argparse.Namespace) -> list[Contender]:
    sizes: dict[str, Any] = {"n_ctx": 2048, "n_threads": args.threads, "cpus": pinned(args.threads)}
    found = []
    for mode in ("resident", "mmap"):
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
    if llamacpp.has_xllamacpp():
        about = llamacpp.versions(llamacpp.XLLAMACPP) | {"command": f"Server n_ctx 2048, {args.threads} threads"}
        found.append(Contender("xllamacpp", about, partial(llamacpp.Server, llamacpp.XLLAMACPP, model, **sizes)))
    return found


async def ask(url: str, first: int, n: int) -> list[Streamed]:
    """One warming request, then n measured ones, one after another."""
    await stream_chat(url, question(first) | {"max_tokens": 8})
    return [await stream_chat(url, question(first + 1 + i)) for i in range(n)]


def compete(players: list[Contender], n_rounds: int, n_asks: int, patience_s: float) -> tuple[list[Any], list[float]]:
    """Rows with medians over rounds, and the busy share before each round."""
    rates: dict[str, list[float]] = {p.name: [] for p in players}
    waits: dict[str, list[float]] = {p.name: [] for p in players}
    busy = []
    for n in range(n_rounds):
        busy.append(wait_for_quiet(patience_s))
        turn = n % len(players)
        for player in [*players[turn:], *players[:turn]]:
            with player.open() as server:
                answers = asyncio.run(ask(server.url, 1000 * n, n_asks))
            rates[player.name].append(median(a.tokens_per_second for a in answers))
            waits[player.name].append(median(a.first_s for a in answers))
        print(f"round {n + 1} of {n_rounds} done, others used {busy[-1]:.0%} before it", file=sys.stderr)
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
    return rows, busy


def main() -> None:
    parser = argparse.ArgumentParser(description="Streamed answers per second and time to the first piece.")
    parser.add_argument("--server", help="a llama-server binary (or PEER_SERVER, or PATH)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--asks", type=int, default=3, help="measured requests inside one turn; their median counts")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a quiet machine per round")
    parser.add_argument("-m", "--model", type=Path, default=None)
    args = parser.parse_args()
    model = args.model or smollm2()
    players = contenders(model, args)
    rows, busy = compete(players, args.rounds, args.asks, args.patience)
    rival = max((row["median_ts"] for row in rows if not row["contender"].startswith("colibri")), default=None)
    for row in rows:
        if rival and row["contender"].startswith("colibri"):
            row["ratio_to_fastest_peer"] = round(row["median_ts"] / rival, 3)
        print(
            f"{row['contender']:22s} {row['median_ts']:8.1f} tok/s  first piece {row['median_ttft_s'] * 1000:7.1f} ms"
        )
    content = stamp(model) | {
        "rounds": args.rounds,
        "threads": args.threads,
        "request": f"streamed chat, {N_TOKENS} tokens, about 190 of prompt, {SAMPLING}",
        "quiet": max(busy) <= BUSY_LIMIT,
        "busy_before_round": [round(b, 3) for b in busy],
        "contenders": {p.name: p.about for p in players},
        "rows": rows,
    }
    print(save("serve", content), file=sys.stderr)


if __name__ == "__main__":
    main()
