"""Who competes: colibri, native llama.cpp and xllamacpp, each measured its own way on the same file. Not here: rounds.

A measure gives tokens per second by test: tg64 decodes 64 tokens, pp256 reads a prompt of 256. Every contender runs in
a process of its own, with threads on CPUs 0.. of the mask. `strict` nails each thread to one CPU: llama-bench by
-C and --cpu-strict 1, colibri always where it may (engine/load.py), xllamacpp not at all.
"""

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import llamacpp, ours
from benchmarks.machine import pin_self, pinned

N_PROMPT = 256
Samples = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Contender:
    """`measure()` gives samples per test; `about` is what the results file says of it."""

    name: str
    ours: bool
    about: dict[str, str]
    measure: Callable[[], Samples]


def contenders(
    model: Path, *, n_gen: int, threads: int, strict: bool, reps: int, bench: str | None, extras: bool
) -> list[Contender]:
    """Ours and the native peer; with `extras` also ours on mapped weights and xllamacpp."""
    found = []
    for mode in ("resident", "mmap") if extras else ("resident",):
        command = ours.command("bench", "-m", str(model), "--load-mode", mode)
        about = {"version": ours.our_version(), "command": f"colibri bench --load-mode {mode}"}
        run = partial(run_bench, command, n_gen=n_gen, threads=threads, reps=reps)
        found.append(Contender(f"colibri {mode}", True, about, run))
    if bench:
        flags = strict_flags(threads) if strict else []
        about = llamacpp.versions(bench) | {"command": " ".join(["llama-bench", *flags])}
        run = partial(run_bench, [bench, "-m", str(model), *flags], n_gen=n_gen, threads=threads, reps=reps)
        found.append(Contender("llama.cpp native", False, about, run))
    if extras and not strict and llamacpp.has_xllamacpp():
        about = llamacpp.versions(llamacpp.XLLAMACPP) | {"command": "Server timings, greedy"}
        found.append(Contender("xllamacpp", False, about, partial(run_xllamacpp, model, n_gen, threads, reps)))
    return found


def strict_flags(threads: int) -> list[str]:
    """llama.cpp's flags for one thread on each CPU."""
    return ["-C", hex(sum(1 << cpu for cpu in pinned(threads))), "--cpu-strict", "1"]


def run_bench(command: Sequence[str], n_gen: int, threads: int, reps: int, n_prompt: int = N_PROMPT) -> Samples:
    """llama-bench and `colibri bench` take the same flags and answer with the same fields."""
    sizes = ["-p", str(n_prompt), "-n", str(n_gen), "-t", str(threads), "-r", str(reps), "-o", "json"]
    done = subprocess.run(
        [*command, *sizes],
        capture_output=True,
        text=True,
        check=False,
        cwd=ours.ROOT,
        preexec_fn=partial(pin_self, pinned(threads)),
    )
    if done.returncode:
        raise SystemExit(f"{' '.join([*command, *sizes])} ended with code {done.returncode}: {done.stderr[-500:]}")
    return {_test(row): [float(ts) for ts in row["samples_ts"]] for row in json.loads(done.stdout)}


def _test(row: dict[str, Any]) -> str:
    return f"pp{row['n_prompt']}" if row["n_gen"] == 0 else f"tg{row['n_gen']}"


def run_xllamacpp(model: Path, n_gen: int, threads: int, reps: int) -> Samples:
    """The package has no bench; its server's own timings leave HTTP out. The first request warms it."""
    ids = prompt_ids(N_PROMPT)
    samples: Samples = {f"tg{n_gen}": [], f"pp{N_PROMPT}": []}
    with llamacpp.Server(llamacpp.XLLAMACPP, model, n_threads=threads, cpus=pinned(threads)) as server:
        for rep in range(reps + 1):
            prefill = server.complete(ids, 1)["timings"]["prompt_per_second"]
            decode = server.complete(ids[:1], n_gen + 1, ignore_eos=True, top_k=1)["timings"]["predicted_per_second"]
            if rep:
                samples[f"tg{n_gen}"].append(decode)
                samples[f"pp{N_PROMPT}"].append(prefill)
    return samples


def prompt_ids(n: int) -> list[int]:
    """A prompt of n ids of SmolLM2's vocabulary, always the same."""
    return [(i * 7919 + 11) % 49152 for i in range(n)]
