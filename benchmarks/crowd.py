"""Thirty clients with default retries against a profile that answers one at a time: nobody is lost, nothing done twice.

    python -m benchmarks.crowd [--minutes 10] [--clients 30] [--seed 1] [--model GGUF]

One client is in the lane `interactive` and asks now and then; the others crowd the lane `fallback`, and some leave in
the middle. Adds to benchmarks/results/<machine>.json. Not here: swaps under load (storm.py), batches (batch_kills.py).
"""

import argparse
import asyncio
import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import openai
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.llamacpp import free_port, wait_for_health
from benchmarks.model import smollm2
from benchmarks.ours import ROOT, command
from benchmarks.record import save, stamp

WHOLE_MIN = 10.0
"""A shorter crowd is a look, and no figure is kept of it."""
SETTLED = 0.2
"""Share of the time after which memory is taken to have settled: minute 2 of 10."""
GROWTH_MB, SLACK_S = 20.0, 5.0
TOKENS = 48
LEAVES = 0.1
END_S = 120.0
PROFILE = """name: reserve
alias: reserve
ctx_size: 512
parallel: 1
queue:
  max_queue: 4
  queue_timeout: 120.0
  timeout: 300.0
"""


@dataclass
class Seen:
    """What came of it; `wrong` must stay empty. Waits of the interactive client and the longest run in seconds, memory
    as (seconds since the start, MB of all processes of the service)."""

    counts: Counter[str] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)
    longest_s: float = 0.0
    memory: list[tuple[float, float]] = field(default_factory=list)
    finished: int = 0
    wrong: list[str] = field(default_factory=list)

    def p99_s(self) -> float:
        ordered = sorted(self.waits_s) or [0.0]
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]

    def growth_mb(self) -> float:
        """From the time when memory has settled to the end, a median of samples each."""
        if not self.memory:
            return 0.0
        end = self.memory[-1][0]
        settled = [mb for at, mb in self.memory if SETTLED * end <= at <= 1.25 * SETTLED * end]
        last = [mb for at, mb in self.memory if at >= (1 - SETTLED / 4) * end]
        return median(last) - median(settled) if settled and last else 0.0


class Client:
    """One openai-python client as people have it: its default retries, and a look at every answer's status."""

    def __init__(self, url: str, lane: str, dice: random.Random, seen: Seen) -> None:
        self.lane, self._dice, self._seen = lane, dice, seen
        http = openai.DefaultAsyncHttpxClient(event_hooks={"response": [self._look]})
        headers = {"X-Colibri-Lane": lane}
        self._api = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", http_client=http, default_headers=headers)

    async def run(self, until: float) -> None:
        n = 0
        try:
            while time.monotonic() < until:
                n += 1
                await self._ask(n)
                if self.lane == "interactive":
                    await asyncio.sleep(self._dice.random() * 3)
        finally:
            await self._api.close()

    async def _look(self, response: httpx.Response) -> None:
        self._seen.counts[f"HTTP {response.status_code}"] += 1
        if response.status_code == 429:
            if not {"retry-after", "retry-after-ms"} <= response.headers.keys():
                self._seen.wrong.append("a 429 without Retry-After")
        elif response.status_code != 200:
            self._seen.wrong.append(f"HTTP {response.status_code}")

    async def _ask(self, n: int) -> None:
        note = f"Note {n} of {self._dice.randrange(10**9)}: "  # no two requests are the same
        words = " ".join(self._dice.choice(("rain", "pump", "door", "late", "loud", "cold")) for _ in range(20))
        ask: dict[str, Any] = {
            "model": "reserve", "messages": [{"role": "user", "content": note + words}], "max_tokens": TOKENS,
            "temperature": 0,
        }  # fmt: skip
        is_streamed = self._dice.random() < 0.5
        leaves = is_streamed and self.lane != "interactive" and self._dice.random() < 2 * LEAVES
        try:
            await (self._streamed(ask, leaves) if is_streamed else self._plain(ask))
        except openai.RateLimitError:
            self._seen.counts["refused after the SDK's retries"] += 1
        except openai.OpenAIError as error:
            self._seen.wrong.append(f"{type(error).__name__}: {str(error)[:200]}")

    async def _plain(self, ask: dict[str, Any]) -> None:
        answer = await self._api.chat.completions.create(**ask)
        self._answered(answer.choices[0].finish_reason, (answer.model_extra or {}).get("timings", {}))

    async def _streamed(self, ask: dict[str, Any], leaves: bool) -> None:
        stream = await self._api.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True})
        finish, timings, n = None, {}, 0
        async with stream:
            async for chunk in stream:
                n += 1
                if leaves and n > 5:
                    self._seen.counts["left by the client"] += 1
                    return
                finish = chunk.choices[0].finish_reason if chunk.choices and chunk.choices[0].finish_reason else finish
                timings = (chunk.model_extra or {}).get("timings") or timings
        self._answered(finish, timings)

    def _answered(self, finish: str | None, timings: dict[str, float]) -> None:
        self._seen.counts[f"answered in lane {self.lane}"] += 1
        if finish not in ("stop", "length"):
            self._seen.wrong.append(f"an answer ended as {finish}")
        if self.lane == "interactive" and "queue_ms" in timings:
            self._seen.waits_s.append(timings["queue_ms"] / 1e3)
        took = (timings.get("prompt_ms", 0.0) + timings.get("predicted_ms", 0.0)) / 1e3
        self._seen.longest_s = max(self._seen.longest_s, took)


def _get(url: str, path: str) -> str:
    with urllib.request.urlopen(url + path, timeout=END_S) as reply:
        return str(reply.read().decode())


def metric(page: str, name: str) -> float:
    """The sum of a counter over its labels."""
    families = text_string_to_metric_families(page)
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


def memory_mb(pid: int) -> float:
    """Resident memory of a process and all below it, without the pages of files."""
    total, todo = 0, [pid]
    while todo:
        one = todo.pop()
        with contextlib.suppress(OSError):
            todo += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
            rows = Path(f"/proc/{one}/status").read_text().splitlines()
            total += sum(int(row.split()[1]) for row in rows if row.startswith("RssAnon:"))
    return total / 1024


async def crowd(url: str, pid: int, minutes: float, n_clients: int, seed: int, seen: Seen) -> None:
    """The clients until the time is over and their last answers are there; memory once a second."""
    began = time.monotonic()
    until = began + 60 * minutes
    lanes = ["interactive", *["fallback"] * (n_clients - 1)]
    clients = [Client(url, lane, random.Random(seed * 1000 + i), seen) for i, lane in enumerate(lanes)]
    going = asyncio.gather(*(client.run(until) for client in clients))
    while not going.done():
        await asyncio.wait([going], timeout=1.0)
        if time.monotonic() < until:
            seen.memory.append((time.monotonic() - began, memory_mb(pid)))
        elif time.monotonic() > until + END_S:
            going.cancel()
            seen.wrong.append(f"clients hang {END_S:.0f} s after the end")
            break
    await asyncio.gather(going, return_exceptions=True)


def look(folder: Path, model: Path, minutes: float, n_clients: int, seed: int) -> Seen:
    """Start a service in `folder`, let the crowd in, and compare what it did with what the clients got."""
    (folder / "profiles").mkdir(parents=True)
    (folder / "profiles" / "reserve.yaml").write_text(PROFILE)
    port, seen = free_port(), Seen()
    url = f"http://127.0.0.1:{port}"
    words = ("--default-model", str(model), "--profile", "reserve", "--port", str(port), "--no-auth")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command("serve", *words, "--data-dir", str(folder)), cwd=ROOT, stdout=log, stderr=log
        )  # fmt: skip
    try:
        wait_for_health(url, process)
        before = metric(_get(url, "/metrics"), "colibri_request_success_total")
        asyncio.run(crowd(url, process.pid, minutes, n_clients, seed, seen))
        page = _get(url, "/metrics")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
    seen.finished = round(metric(page, "colibri_request_success_total") - before)
    n_answered = sum(n for name, n in seen.counts.items() if name.startswith("answered"))
    # Who leaves may do so while the last tokens are on their way.
    if not n_answered <= seen.finished <= n_answered + seen.counts["left by the client"]:
        seen.wrong.append(f"{n_answered} answers reached a client, {seen.finished} were computed to the end")
    return seen


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.crowd", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=WHOLE_MIN)
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=Path, default=None, help="a GGUF file (default: SmolLM2)")
    args = parser.parse_args(argv)
    model = args.model or smollm2()
    with tempfile.TemporaryDirectory(prefix="colibri-crowd-") as name:
        seen = look(Path(name), model, args.minutes, args.clients, args.seed)
    result = {
        "minutes": args.minutes, "clients": args.clients, "requests": dict(seen.counts),
        "computed_to_the_end": seen.finished, "interactive_waits": len(seen.waits_s),
        "interactive_p99_s": round(seen.p99_s(), 2), "longest_run_s": round(seen.longest_s, 2),
        "memory_mb": round(seen.memory[-1][1]) if seen.memory else None, "growth_mb": round(seen.growth_mb(), 1),
        "wrong": seen.wrong[:20], "n_wrong": len(seen.wrong),
    }  # fmt: skip
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    if args.minutes >= WHOLE_MIN:
        save("crowd", stamp(model) | result)
    holds = seen.p99_s() <= seen.longest_s + SLACK_S and seen.growth_mb() < GROWTH_MB
    return 0 if holds and not seen.wrong else 1


if __name__ == "__main__":
    raise SystemExit(main())
