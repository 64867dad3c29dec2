"""Experts larger than their memory: speed, hits, and the bytes read beside what an ideal cache would read on the trace.

    python -m benchmarks.expert_trace -m MODEL.gguf [--limit 1600] [--before 32] [--tokens 64] [--cache-mb N]
    python -m benchmarks.expert_trace -m MODEL.gguf --server /path/to/llama-server [--rounds 3]    both by turns
    python -m benchmarks.expert_trace -m MODEL.gguf --same                                        bits, no group

The model runs in a control group of --limit MiB (root only) with a cold file; tokens --before do not count. The trace
of every expert used goes through the caches of expert_caches.py: ours to the byte (`ideal`), one that knows the future
(`foreseen`), and ours with other half-lives. --same compares logits with resident mode for several cache
sizes and threads. llama.cpp runs in a group of its own, mapped and without repacking, the only way in which the kernel
does not kill it. Whole rounds go to benchmarks/results/<machine>.json. Not here: dense weights (bigger_than_ram.py).
"""

import argparse
import hashlib
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import llamacpp
from benchmarks.expert_caches import Ideal, foreseen, steps
from benchmarks.memory_group import group, run_child
from benchmarks.ours import our_version
from benchmarks.record import save, stamp
from engine.budget import MIB
from engine.weights.experts import HALF_LIFE

N_CTX = 512
PROMPT = (5, 9, 100, 7, 33, 1200, 81, 4)
HALF_LIVES = (16, 64, 256, 1024)
MOST_USES = 1 << 20
WHOLE = 3
"""Fewer rounds are a look, and no figure is kept of them."""


@dataclass(frozen=True, slots=True)
class Way:
    """One run in a process of its own; `cache` bytes of experts, None: as planned."""

    model: str
    load_mode: str = "stream"
    threads: int = 2
    n_before: int = 32
    n_made: int = 64
    cache: int | None = None
    is_traced: bool = True


def child(way: Way) -> dict[str, Any]:
    """Load, decode, say how it went."""
    from appliance.machine.host import read_machine
    from engine.load import EngineOptions, load_engine
    from engine.sampling import Sampling

    options = EngineOptions(
        n_ctx=N_CTX, threads=way.threads, threads_batch=way.threads, load_mode=way.load_mode, spec_type="none",
        expert_bytes=way.cache,
    )  # fmt: skip
    start = time.perf_counter()
    engine = load_engine(way.model, options, read_machine())
    load_s = time.perf_counter() - start
    stream, bits = engine._m.stream, hashlib.sha256()
    cache = stream.experts if stream else None
    if cache and way.is_traced:
        cache.record(MOST_USES)
    text = engine.open(PROMPT, Sampling(temperature=0.0), way.n_before + way.n_made)
    while text.n_generated < way.n_before:
        engine.step(text)
    before = cache.n_misses if cache else 0
    read, waited = (stream.readers.n_bytes, stream.readers.wait_ns) if stream else (0, 0)
    first, start = len(cache.uses()) if cache and way.is_traced else 0, time.perf_counter()
    while text.finish is None:
        engine.step(text)
        bits.update(engine.logits_of(text).tobytes())
    took_s = time.perf_counter() - start
    found: dict[str, Any] = {
        "load_mode": engine.info.load_mode, "load_s": round(load_s, 2), "tok_s": round(way.n_made / took_s, 3),
        "logits_sha256": bits.hexdigest(),
    }  # fmt: skip
    if stream and cache:
        n_read = (stream.readers.n_bytes - read) / way.n_made
        found |= {
            "cache_bytes": cache.n_bytes, "slots": [p.n_slots for p in cache.pools],
            "pinned_bytes": stream.split.pinned_bytes, "streamed_bytes": stream.split.streamed_bytes,
            "misses_per_token": round((cache.n_misses - before) / way.n_made, 1), "read_per_token": round(n_read),
            "disk_bytes_s": round(n_read * way.n_made / took_s),
            "wait_share": round((stream.readers.wait_ns - waited) / 1e9 / took_s, 3),
        }  # fmt: skip
        if way.is_traced:
            sizes = [int(size) for size in cache.sizes.sum(axis=1)]
            found |= beside(cache.uses(), first, sizes, cache.n_experts, cache.n_bytes, way, n_read)
    engine.shutdown()
    return found


def beside(
    uses: NDArray[np.int64], first: int, sizes: list[int], n_experts: int, n_bytes: int, way: Way,
    n_read: float,
) -> dict[str, Any]:  # fmt: skip
    """What other caches of so many bytes read per token behind use number `first`."""
    n_used = int(uses[uses[:, 0] == 0][:, 2].sum()) // (way.n_before + way.n_made + len(PROMPT) - 1)
    per_token = {
        h: ideal(uses, first, sizes, n_experts, n_bytes, n_used, h) / way.n_made for h in (HALF_LIFE, *HALF_LIVES)
    }
    whole = foreseen(uses, sizes, n_bytes) - foreseen(uses[:first], sizes, n_bytes)
    return {
        "ideal_per_token": round(per_token[HALF_LIFE]), "read_over_ideal": round(n_read / per_token[HALF_LIFE], 3),
        "foreseen_per_token": round(whole / way.n_made),
        "by_half_life": {h: round(per_token[h]) for h in HALF_LIVES},
    }  # fmt: skip


def ideal(
    uses: NDArray[np.int64], first: int, sizes: list[int], n_experts: int, n_bytes: int, n_used: int,
    half_life: float,
) -> int:  # fmt: skip
    """Bytes read behind use number `first`, which begins a step."""
    cache = Ideal(sizes, n_experts, n_bytes, n_used, half_life)
    for step in steps(uses[:first]) if first else ():
        cache.step(step)
    before = cache.missed_bytes
    for step in steps(uses[first:]):
        cache.step(step)
    return cache.missed_bytes - before


def run(way: Way, limit: int | None) -> dict[str, Any]:
    """One run, in a group of `limit` bytes if there is one."""
    return run_child("benchmarks.expert_trace", asdict(way), limit)


def peer_speed(program: str, way: Way, limit: int) -> float:
    """llama.cpp's tokens per second behind as many tokens; 0 when it was killed."""
    flags = ("--no-repack", "--no-warmup")
    server = llamacpp.Server(program, Path(way.model), n_ctx=N_CTX, n_threads=way.threads, flags=flags)
    with group(limit) as limited:
        server.command = limited.argv(server.command)
        try:
            with server:
                server.complete(PROMPT, way.n_before)
                return float(server.complete(PROMPT, way.n_made)["timings"]["predicted_per_second"])
        except (SystemExit, OSError):
            return 0.0


def rounds(program: str, way: Way, limit: int, n: int) -> dict[str, Any]:
    """Ours and the peer by turns; kept when they are enough."""
    found: list[dict[str, Any]] = []
    for _ in range(n):
        found.append(run(way, limit) | {"peer_tok_s": round(peer_speed(program, way, limit), 3)})
        print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    ours, peer = median(r["tok_s"] for r in found), median(r["peer_tok_s"] for r in found)
    out = {"limit_bytes": limit, "tok_s": ours, "peer_tok_s": peer, "ratio": round(ours / peer, 1) if peer else None}
    if n >= WHOLE:
        about = {"colibri": {"version": our_version()}, "llama-server": llamacpp.versions(program)}
        save("expert_trace", stamp(Path(way.model)) | {"contenders": about, "runs": found} | out)
    return out


def same(model: str, n_made: int) -> dict[str, bool]:
    """Whether logits are those of resident mode, for caches from next to nothing to all."""
    short = {"n_before": 1, "n_made": n_made, "is_traced": False}
    want = run(Way(model, "resident", **short), None)["logits_sha256"]
    ways = [Way(model, threads=t, cache=c * MIB, **short) for c, t in ((0, 2), (100, 1), (600, 3), (1 << 20, 2))]
    return {f"{w.cache} bytes, {w.threads} threads": run(w, None)["logits_sha256"] == want for w in ways}


def main() -> None:
    parser = argparse.ArgumentParser(description="Experts larger than their memory, beside an ideal cache.")
    parser.add_argument("-m", "--model", help="a GGUF file with experts")
    parser.add_argument("--limit", type=int, default=1600, help="MiB of memory (default: %(default)s)")
    parser.add_argument("--before", type=int, default=32, help="tokens that do not count (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens that count (default: %(default)s)")
    parser.add_argument("--cache-mb", type=int, default=None, help="MiB of experts (default: as planned)")
    parser.add_argument("--server", help="a llama-server binary to compare with")
    parser.add_argument("--rounds", type=int, default=WHOLE, help="of both by turns (default: %(default)s)")
    parser.add_argument("--same", action="store_true", help="compare logits with resident mode instead")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(Way(**json.loads(args.child)))))
        return
    if not args.model:
        parser.error("name the file with -m")
    if args.same:
        print(json.dumps(same(args.model, args.tokens), indent=1))
        return
    cache = None if args.cache_mb is None else args.cache_mb * MIB
    way = Way(args.model, n_before=args.before, n_made=args.tokens, cache=cache)
    limit = args.limit * MIB
    found = rounds(args.server, way, limit, args.rounds) if args.server else run(way, limit)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
