"""What an answer took, in lines for people: `colibri run --stats`. Not here: counting (engine/spent.py), loading.

    weights   stream: 1,357 MiB in memory, 960 MiB read for each step through 64 MiB
    prompt    32 tokens, 4.1 s, 7.8 tok/s
    answer    100 tokens, 72.4 s, 1.4 tok/s
    a token   724 ms: computing 110, waiting for the disk 610, choosing 4
    read      960 MiB and 240 reads a token, 95,000 MiB in all, 1,238 MB/s
    faults    12 pages read by the kernel
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from engine.budget import mib

if TYPE_CHECKING:
    from engine.info import EngineInfo
    from engine.spent import Spent

MS = 1e6


def spent_json(spent: "Spent") -> dict[str, int]:
    """The sums under their own names, with `compute_ns` beside."""
    return {**asdict(spent), "compute_ns": spent.compute_ns}


def lines(info: "EngineInfo", timings: Mapping[str, float], prompt: "Spent", answer: "Spent") -> Iterator[str]:
    """Of one answer: llama-server's timings, and what its prompt and its tokens used up."""
    yield f"weights   {where(info)}"
    for name, key in (("prompt", "prompt"), ("answer", "predicted")):
        n, ms, rate = (timings[f"{key}_{word}"] for word in ("n", "ms", "per_second"))
        yield f"{name:<9} {n:.0f} tokens, {ms / 1e3:,.2f} s, {rate:,.2f} tok/s"
    # The first token came with the prompt's last step.
    if answer.n_tokens:
        n = answer.n_tokens
        whole, computing, disk, choosing = (
            f"{ns / n / MS:,.1f}" for ns in (answer.step_ns, answer.compute_ns, answer.disk_ns, answer.sample_ns)
        )
        yield f"a token   {whole} ms: computing {computing}, waiting for the disk {disk}, choosing {choosing}"
    both = sum_of(prompt, answer)
    if both.read_bytes:
        n = answer.n_tokens
        each = f"{mib(answer.read_bytes // n)} and {answer.n_reads // n:,} reads a token, " if n else ""
        speed = both.read_bytes / max(1, both.step_ns) * 1e3
        yield f"read      {each}{mib(both.read_bytes)} in all, {speed:,.0f} MB/s"
    if needed := both.expert_hits + both.expert_misses:
        yield f"experts   {both.expert_hits:,} of {needed:,} were in the cache ({both.expert_hits / needed:.0%})"
    if "draft_n" in timings:
        n, right = timings["draft_n"], timings["draft_n_accepted"]
        yield f"guesses   {right:.0f} of {n:.0f} were right; {answer.n_steps} passes made {answer.n_tokens} tokens"
    yield f"faults    {both.major_faults} pages read by the kernel"


def where(info: "EngineInfo") -> str:
    """Where the weights are, in a sentence."""
    if info.load_mode != "stream":
        place = {"resident": "repacked in memory of our own", "mlock": "the mapped file, locked"}
        return f"{info.load_mode}: {mib(info.weights_bytes)}, {place.get(info.load_mode, 'the mapped file')}"
    cache = f", {mib(info.expert_cache_bytes)} for experts" if info.expert_cache_bytes else ""
    read = f", {mib(info.streamed_bytes)} read for each step through {mib(info.ring_bytes)}"
    return f"stream: {mib(info.pinned_bytes)} in memory{cache}{read if info.streamed_bytes else ''}"


def sum_of(a: "Spent", b: "Spent") -> "Spent":
    """Both together."""
    both: dict[str, Any] = {name: value + getattr(b, name) for name, value in asdict(a).items()}
    return type(a)(**both)
