"""`colibri relayout`: a copy of a model file whose experts lie as they are read, and the way back. Not here: the bytes.

    --json              {"file", "bytes", "tensors_checked", "original_bytes", "original_sha256"}
    --dry-run --json    {"file", "bytes", "copy_bytes", "layers", "experts", "used", "heat", "reads": [{"cache_bytes",
                        "cached_experts", "missed", "reads_before", "bytes_before", "reads_after", "bytes_after"}]}
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from appliance.cli.columns import columns, human_bytes, safe
from appliance.cli.flags import resolved
from appliance.cli.progress import Progress
from engine.errors import UsageError
from engine.gguf.digest import model_digest
from engine.gguf.reader import GgufFile, read_gguf
from engine.gguf.scattered import PREFIX
from engine.relayout.back import write_back
from engine.relayout.copy import copy_bytes, write_copy
from engine.relayout.forecast import Reads, forecast
from engine.relayout.order import ExpertLayer, expert_layers, n_used, ordered
from engine.weights.heat import Heat, even_heat, heat_path, kept_heat, read_heat, write_heat

NAME = "relayout"
HELP = "a copy of a model whose experts lie together on disk, and back"
SHARES = (0, 10, 25, 50)
"""Caches that a forecast shows, in hundredths of all experts."""
WORDS = {"hash": "hashing", "write": "writing", "check": "reading the copy again"}
TOLD = "A GGUF file in Colibri's own layout: others can list it, not run it. colibri relayout --back turns it back."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n  colibri relayout moe.gguf moe.fast.gguf --heat heat.json\n"
        "  colibri relayout moe.gguf --dry-run --heat heat.json --cache-mb 900\n"
        "  colibri relayout --back moe.fast.gguf moe.gguf\n\n"
        "Each expert becomes one stretch that one direct read brings, hot ones first.\n"
        "Every tensor's hash is checked before the copy gets its name."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the model file")
    parser.add_argument("out", type=Path, nargs="?", metavar="OUT", help="the file to write, which must not be there")
    parser.add_argument("--heat", type=Path, metavar="FILE",
                        help="recorded use of each expert (default: what runs here have recorded)")  # fmt: skip
    parser.add_argument("--back", action="store_true", help="FILE is such a copy: write the file it was made from")
    parser.add_argument("--dry-run", action="store_true", help="write nothing; say what a token will read from disk")
    parser.add_argument("--cache-mb", type=int, metavar="N", help="with --dry-run: a cache of N MiB for experts")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    _check(args)
    gguf = read_gguf(args.file)
    if args.dry_run:
        layers = expert_layers(gguf)
        found = _forecast(args, gguf, layers, *_heat(args, gguf, layers))
        print(json.dumps(found) if args.json else _page(found))
        return 0
    progress = Progress()

    def on_progress(stage: str, done: int, total: int) -> None:
        progress.share(WORDS[stage], done, total)

    try:
        if args.back:
            write_back(gguf, args.out, on_progress)
        else:
            layers = expert_layers(gguf)
            heat, source = _heat(args, gguf, layers)
            write_copy(gguf, heat, args.out, on_progress)
            if source is not None:  # a start with the copy need not learn it again
                digest = model_digest(read_gguf(args.out))
                write_heat(heat_path(resolved(args).settings.heat_dir(), digest), heat, digest)
    finally:
        progress.close()
    _tell(args, gguf)
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.dry_run and (args.back or args.out):
        raise UsageError(f"--dry-run writes nothing; leave {'--back' if args.back else 'OUT'} out")
    if not args.dry_run and args.out is None:
        raise UsageError("the file to write is missing: colibri relayout FILE OUT (or --dry-run)")
    if args.back and args.heat:
        raise UsageError("--heat orders a copy; the way back has one order only")
    if args.cache_mb is not None and not args.dry_run:
        raise UsageError("--cache-mb belongs to --dry-run; colibri run and serve choose their own cache")
    if args.cache_mb is not None and not 0 <= args.cache_mb <= 1 << 24:
        raise UsageError(f"--cache-mb {args.cache_mb}: 0 to {1 << 24} is possible")


def _heat(args: argparse.Namespace, gguf: GgufFile, layers: list[ExpertLayer]) -> tuple[Heat, str | None]:
    """The heat, and the name of the file it was recorded in; None where all are taken to be alike."""
    n_layers, n_experts, digest = len(layers), layers[0].n_experts, model_digest(gguf)
    if args.heat is not None:
        return read_heat(args.heat, n_layers, n_experts, digest), args.heat.name
    path = heat_path(resolved(args).settings.heat_dir(), digest)
    if (kept := kept_heat(path, n_layers, n_experts, digest)) is not None:
        return kept, path.name
    return even_heat(n_layers, n_experts), None


def _forecast(
    args: argparse.Namespace, gguf: GgufFile, layers: list[ExpertLayer], heat: Heat, source: str | None
) -> dict[str, Any]:
    used, every = n_used(gguf, layers), sum(layer.expert_bytes * layer.n_experts for layer in layers)
    caches = [args.cache_mb << 20] if args.cache_mb is not None else [every * share // 100 for share in SHARES]
    return {
        "file": gguf.path.name, "bytes": gguf.n_bytes, "copy_bytes": copy_bytes(gguf, ordered(gguf, layers, heat)),
        "layers": len(layers), "experts": layers[0].n_experts, "used": used,
        "heat": source,
        "reads": [asdict(forecast(layers, heat, used, cache)) for cache in caches],
    }  # fmt: skip


def _page(found: dict[str, Any]) -> str:
    alike = "all experts alike, since no run has recorded their use"
    heat = alike if found["heat"] is None else f"heat of {safe(found['heat'])}"
    head = (
        f"{safe(found['file'])}: {found['layers']} layers of {found['experts']} experts, a token uses {found['used']};"
        f" {heat}\n{human_bytes(found['bytes'])} now, the copy {human_bytes(found['copy_bytes'])}. Per token:"
    )
    rows = [["cache", "experts in it", "missed", "reads now", "reads then", "bytes now", "bytes then"]]
    for values in found["reads"]:
        r = Reads(**values)
        rows.append([
            human_bytes(r.cache_bytes), str(r.cached_experts), f"{r.missed:.1f}", f"{r.reads_before:.1f}",
            f"{r.reads_after:.1f}", human_bytes(round(r.bytes_before)), human_bytes(round(r.bytes_after)),
        ])  # fmt: skip
    return f"{head}\n{columns(rows, right=tuple(range(7)))}"


def _tell(args: argparse.Namespace, gguf: GgufFile) -> None:
    written = read_gguf(args.out)
    original = written if args.back else gguf
    keys = (gguf if args.back else written).metadata
    if args.json:
        print(json.dumps({
            "file": args.out.name, "bytes": written.n_bytes, "tensors_checked": len(original.tensors),
            "original_bytes": original.n_bytes, "original_sha256": keys[PREFIX + "sha256"],
        }))  # fmt: skip
    elif args.back:
        print(f"{safe(args.out.name)}: {human_bytes(written.n_bytes)}, the same bytes as before (SHA-256 compared)")
    else:
        print(f"{safe(args.out.name)}: {human_bytes(written.n_bytes)}, {len(gguf.tensors)} tensors checked\n{TOLD}")
