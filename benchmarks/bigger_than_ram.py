"""A model larger than its memory, against llama.cpp in turn: steady tokens per second, bytes read, starts, same bits.

    python -m benchmarks.bigger_than_ram -m MODEL.gguf [--limit 1600] [--server /path/to/llama-server]
    python -m benchmarks.bigger_than_ram -m MODEL.gguf --starts 20      limits from 30% to 120% of the file
    python -m benchmarks.bigger_than_ram -m MODEL.gguf --same           logits of stream mode against resident mode

Each contender runs in a control group of its own (root only), with a cold file, and makes N_MADE tokens after N_BEFORE
that do not count. llama.cpp's modes are tried in turn and one that the kernel kills is out. The disk's limit is what
our readers get from the same chunks of the same file with nothing to compute, before and after the tokens of each turn.
Guessing tokens is off. Whole rounds go to benchmarks/results/<machine>.json. Not here: forecasts (forecasts.py).
"""

import argparse
import hashlib
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import llamacpp
from benchmarks.memory_group import PrivatePeak, group, run_child
from benchmarks.ours import command, our_version
from benchmarks.record import load, save, stamp
from engine.budget import MIB
from engine.kernels.ring import REQUEST
from engine.weights.stream import Stream

N_BEFORE, N_MADE = 4, 16
N_CTX = 512
PROMPT = (5, 9, 100, 7, 33, 1200, 81, 4)
WHOLE = 3
"""Fewer rounds are a look, and no figure is kept of them."""
PEER_MODES = {"mmap, no repacking": ("--no-repack",), "as it starts by itself": ()}
BATCH = 8
DISK_PASSES = 3


@dataclass(frozen=True, slots=True)
class Ours:
    """One engine of ours to be measured in a process of its own; None: the planner chooses."""

    model: str
    load_mode: str = "auto"
    parallel: int = 1
    threads: int = 2
    pinned: int | None = None
    ring: int | None = None
    spec_type: str = "none"


def child(way: Ours) -> None:
    """Load, decode, say how it went as one JSON line."""
    from appliance.machine.host import read_machine
    from engine.load import EngineOptions, load_engine
    from engine.sampling import Sampling

    options = EngineOptions(
        n_ctx=N_CTX, threads=way.threads, threads_batch=way.threads, load_mode=way.load_mode, n_parallel=way.parallel,
        pinned_bytes=way.pinned, ring_bytes=way.ring, spec_type=way.spec_type,
    )  # fmt: skip
    start = time.perf_counter()
    engine = load_engine(way.model, options, read_machine())
    load_s = time.perf_counter() - start
    greedy = Sampling(temperature=0.0)
    texts = [engine.open([i + 3, *PROMPT], greedy, N_BEFORE + N_MADE) for i in range(way.parallel)]
    while any(t.phase == "prefill" for t in texts) or texts[0].n_generated < N_BEFORE:
        engine.step_many(texts)
    stream, bits = engine._m.stream, hashlib.sha256()
    plain = [reading(stream)] if stream else []
    engine.step_many(texts)  # the ring is full again
    made = texts[0].n_generated
    read, waited = (stream.readers.n_bytes, stream.readers.wait_ns) if stream else (0, 0)
    start, n_steps = time.perf_counter(), 0
    while texts[0].finish is None:
        engine.step_many(texts)
        n_steps += 1
        bits.update(engine.logits_of(texts[0]).tobytes())
    took_s = time.perf_counter() - start
    n_read = stream.readers.n_bytes - read if stream else 0
    found: dict[str, Any] = {
        "load_mode": engine.info.load_mode, "load_s": round(load_s, 2), "steps_per_s": n_steps / took_s,
        "tok_s": (texts[0].n_generated - made) * way.parallel / took_s, "last": texts[0].last,
        "logits_sha256": bits.hexdigest(),
    }  # fmt: skip
    if stream:
        found |= {
            "pinned_bytes": stream.split.pinned_bytes, "streamed_bytes": stream.split.streamed_bytes,
            "read_per_step": n_read / n_steps, "is_direct": stream.origin.is_direct,
            "wait_share": (stream.readers.wait_ns - waited) / 1e9 / took_s,
            "disk_bytes_s": median([*plain, reading(stream)]),
        }  # fmt: skip
    print(json.dumps(found))
    engine.shutdown()


def reading(stream: Stream) -> float:
    """Bytes per second of three passes over the chunks by the stream's own readers; it begins anew afterwards."""
    stream.readers.drain()
    before, start = stream.readers.n_bytes, time.perf_counter()
    for _ in range(DISK_PASSES):
        for i in range(stream.n_chunks):
            stream.readers.post(stream._requests.address + i * REQUEST)
        stream.readers.finish()
    rate = (stream.readers.n_bytes - before) / (time.perf_counter() - start)
    stream.end(False)
    return rate


def run_ours(way: Ours, limit: int | None) -> dict[str, Any]:
    """One run, in a group of `limit` bytes if there is one."""
    return run_child("benchmarks.bigger_than_ram", asdict(way), limit)


def run_peer(program: str, model: Path, mode: str, limit: int, threads: int) -> dict[str, Any]:
    """The peer's steady speed, or that it was killed."""
    server = llamacpp.Server(program, model, n_ctx=N_CTX, n_threads=threads, flags=(*PEER_MODES[mode], "--no-warmup"))
    with group(limit) as limited:
        server.command = limited.argv(server.command)
        try:
            with server:
                server.complete(PROMPT, N_BEFORE)
                answer = server.complete(PROMPT, N_MADE)
        except (SystemExit, OSError) as error:
            return {"tok_s": 0.0, "kills": limited.kills, "end": str(error)[-80:]}
        return {"tok_s": answer["timings"]["predicted_per_second"], "kills": limited.kills}


def peer(args: argparse.Namespace) -> str:
    """A llama-server, else the package."""
    program = llamacpp.binary("llama-server", args.server) or (llamacpp.XLLAMACPP if llamacpp.has_xllamacpp() else "")
    if not program:
        raise SystemExit("no llama-server: give --server, PEER_SERVER or a folder on PATH that has one")
    return program


def rounds(args: argparse.Namespace) -> dict[str, Any]:
    """Alternated rounds: the disk, ours alone and with BATCH sequences, the peer in each mode that lives."""
    program, limit, model = peer(args), args.limit * MIB, Path(args.model)
    ours = {
        "one": Ours(args.model, args.load_mode, threads=args.threads),
        "batch": Ours(args.model, args.load_mode, BATCH, args.threads),
    }
    run_ours(ours["one"], limit)  # compiles what is missing
    modes = list(PEER_MODES) if program != llamacpp.XLLAMACPP else ["as it starts by itself"]
    found: dict[str, list[dict[str, Any]]] = {}
    for n in range(args.rounds):
        for name, way in sorted(ours.items(), reverse=bool(n % 2)):
            found.setdefault(name, []).append(run_ours(way, limit))
            _say(name, found[name][-1])
        for mode in modes[:]:
            found.setdefault(mode, []).append(run_peer(program, model, mode, limit, args.threads))
            _say(mode, found[mode][-1])
            if found[mode][-1]["tok_s"] == 0.0:
                modes.remove(mode)
    return {"limit_mib": args.limit, "runs": found} | ratios(found)


def ratios(found: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """What must come out, of each round's medians."""
    one = median(r["tok_s"] for r in found["one"])
    out = {"tok_s": one, "batch_ratio": median(r["tok_s"] for r in found["batch"]) / one}
    peers = [median(r["tok_s"] for r in runs) for name, runs in found.items() if name in PEER_MODES]
    if best := max(peers, default=0.0):
        out["peer_tok_s"], out["ratio_to_peer"] = best, one / best
    shares = [r["tok_s"] * r["streamed_bytes"] / r["disk_bytes_s"] for r in found["one"]
              if r.get("streamed_bytes")]  # fmt: skip
    if shares:
        out["share_of_disk_limit"] = median(shares)
    return {name: round(value, 3) for name, value in out.items()}


def starts(args: argparse.Namespace) -> list[dict[str, Any]]:
    """`colibri run` with auto settings, eight tokens, at limits from 30% to 120% of the file."""
    size, out = Path(args.model).stat().st_size, []
    for i in range(args.starts):
        limit = int(size * (0.3 + 0.9 * i / max(1, args.starts - 1)))
        with group(limit) as limited:
            argv = command("run", "-m", args.model, "-p", "Hello", "-n", "8", "--temp", "0", "--json")
            process = subprocess.Popen(
                limited.argv(argv), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )  # fmt: skip
            peak = PrivatePeak(process.pid)
            said, talk = process.communicate()
            row: dict[str, Any] = {"limit": limit, "share": round(limit / size, 2), "exit": process.returncode,
                                   "kills": limited.kills, "private_bytes": peak.stop()}  # fmt: skip
        row["n_tokens"] = len(json.loads(said)["tokens"]) if process.returncode == 0 else 0
        row["says"] = "" if row["n_tokens"] else talk.strip().splitlines()[-1:]
        out.append(row)
        _say(f"start {i + 1}", row)
    return out


def same(args: argparse.Namespace) -> dict[str, Any]:
    """Digests of tokens' logits: resident mode, then stream mode with other shares, rings and threads."""
    total = run_ours(Ours(args.model, "stream", pinned=1 << 40), None)
    size = total["pinned_bytes"]
    ways = [Ours(args.model, "stream", threads=t, pinned=int(size * share), ring=ring)
            for share, t, ring in ((0.0, 2, 64 * MIB), (0.4, 1, 16 * MIB), (0.7, 3, 64 * MIB))]  # fmt: skip
    want = run_ours(Ours(args.model, "resident"), None)["logits_sha256"]
    found = {f"{w.pinned} bytes pinned, {w.threads} threads": run_ours(w, None)["logits_sha256"] == want for w in ways}
    return {"n_tokens": N_MADE, "all pinned": total["logits_sha256"] == want} | found


def _say(name: str, row: dict[str, Any]) -> None:
    words = ", ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()
                      if k not in ("logits_sha256", "last"))  # fmt: skip
    print(f"{name}: {words}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="A model larger than its memory, against llama.cpp in turn.")
    parser.add_argument("-m", "--model", help="a GGUF file")
    parser.add_argument("--server", help="a llama-server binary (or PEER_SERVER, or PATH)")
    parser.add_argument("--limit", type=int, default=1600, help="MiB of memory (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-lm", "--load-mode", default="auto")
    parser.add_argument("--starts", type=int, default=0, help="so many starts at rising limits instead")
    parser.add_argument("--same", action="store_true", help="compare logits with resident mode instead")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(Ours(**json.loads(args.child)))
        return
    if not args.model:
        parser.error("name the file with -m")
    if args.same:
        print(json.dumps(same(args), indent=1))
        return
    found = starts(args) if args.starts else rounds(args)
    if args.starts >= 20:
        keep(Path(args.model), {"starts": found})
    elif not args.starts and args.rounds >= WHOLE:
        contenders = {"colibri": {"version": our_version()}, "llama-server": llamacpp.versions(peer(args))}
        keep(Path(args.model), {"rounds": args.rounds, "contenders": contenders, "steady": found})
    print(json.dumps(found, indent=1))


def keep(model: Path, part: dict[str, Any]) -> None:
    """One part of one model's results; the others stay."""
    models = load("bigger_than_ram").get("models", {})
    models[model.stem] = models.get(model.stem, {}) | stamp(model) | part
    save("bigger_than_ram", {"models": models})


if __name__ == "__main__":
    main()
