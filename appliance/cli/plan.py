"""`colibri plan`: what a model will take on this machine, each number with its reason. Not here: loading it.

    --json FILE   {"file", "profile", "fits", "verdict", "reason", "fit", "n_ctx", "max_ctx", "load_mode", "threads",
                  "weights": {kind: bytes}, "weights_bytes", "kv_bytes", "kv_bytes_per_token", "buffers_bytes",
                  "engine_bytes", "needed_bytes", "total_bytes", "budget_bytes", "budget_reason", "spare_bytes",
                  "pinned_bytes", "ring_bytes", "expert_cache_bytes", "stream_bytes_per_token", "cycle_floor_bytes",
                  "private_bytes", "ram_bytes_per_token", "disk_bytes_per_token", "tok_s", "bound", "cached",
                  "warnings", "rows": [{"name", "value", "reason", "provenance"}]}; what does not fit has "error" and
                  "available_bytes" too, and exit code 4. verdict: OK, TIGHT, PAGES, NO; fit: resident, streams,
                  hopeless, no; bound: disk, memory, compute; provenance: measured, derived, policy, operator; cached:
                  share of the file in the page cache, null where nobody tells
    --json DIR    {"folder", "budget_bytes", "budget_reason", "models": [{"file", "verdict", "reason", "fit", "size",
                  "n_ctx", "load_mode", "weights_bytes", "kv_bytes", "total_bytes", "spare_bytes", "tok_s", "bound",
                  "disk_bytes_per_token", "cached"}]}, the best first; verdict BAD: the file cannot be used, its numbers
                  are null
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from appliance.cli.ceilings import read_gbps
from appliance.cli.columns import columns, human_bytes, safe
from appliance.cli.flags import ENGINE, MODEL, add_settings, resolved
from appliance.machine.disk import read_bytes_s
from appliance.machine.host import default_threads, read_machine
from appliance.machine.pagecache import cached_share
from appliance.machine.rates import keep
from appliance.settings import Settings
from appliance.swaps.planning import Look, look
from engine.budget import Machine, budget_of
from engine.errors import BadModelFile, DoesNotFit
from engine.gguf.split import one_each
from engine.planner import Plan, Row

NAME = "plan"
HELP = "where the memory will go, and whether it fits"
# The best first: what stays in memory, what is read for each token, what no one would wait for, what cannot run, and
# what is no model.
ORDER = ("resident", "streams", "hopeless", "no", None)
WORDS = {"hopeless": "hopeless", "no": "does not fit", None: "cannot be used"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n  colibri plan model.gguf               this machine, the settings' context\n"
        "  colibri plan model.gguf -c 32768      does a context of 32768 fit?\n"
        "  colibri plan model.gguf -ctk q8_0 -ctv q8_0 --load-mode mmap\n"
        "  colibri plan --profile long-doc       what that profile would take\n"
        "  colibri plan /models                  all models of a folder, the best first, with tokens per second\n"
        "  colibri plan model.gguf --measure     measures memory and the model's disk first, half a second, and\n"
        "                                        keeps that in the data folder for all plans to come\n\n"
        "Exit code 4 when it does not fit; the smallest change that would fit is on stderr"
    )
    parser.add_argument("file", nargs="?", metavar="FILE|DIR",
                        help="a model, or a folder (not those in it); default: the model of the settings")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--measure", action="store_true", help="measure how fast memory and the disk are, and keep it")
    add_settings(parser, MODEL, ENGINE)


def run(args: argparse.Namespace) -> int:
    folder = Path(args.file).expanduser() if args.file else None
    if folder is not None and folder.is_dir():
        return _rank(folder, resolved(args).settings, args.json, args.measure)
    if args.file is not None:
        args.model = args.file
    if args.measure:
        settings = resolved(args).settings
        _measure(settings.model_path(), settings)
    seen = look(resolved(args).settings, read_machine())
    if seen.error is not None:
        raise seen.error
    assert seen.plan is not None and seen.path is not None
    document = _json(seen, seen.plan, args.profile)
    print(json.dumps(document) if args.json else _page(document, seen.plan))
    if not seen.plan.fits:
        raise DoesNotFit(seen.plan.reason)
    return 0


def _measure(file: Path, settings: Settings) -> None:
    """A disk that cannot be measured past the page cache stays assumed, and the plan's row says so."""
    threads = settings.threads or default_threads(read_machine())
    memory, read = read_gbps(threads, of=median), read_bytes_s(file)
    keep(settings.data_dir, memory=(threads, memory * 1e9) if memory else None, read=(file, read) if read else None)


def _json(seen: Look, made: Plan, profile: str | None) -> dict[str, Any]:
    facts = {key: value for key, value in asdict(made).items() if key not in ("rows", "warnings")}
    found = {
        "file": seen.path.name if seen.path else None, "profile": profile, "fits": made.fits, **facts,
        "spare_bytes": made.spare_bytes, "cached": cached_share(seen.path) if seen.path else None,
        "warnings": list(made.warnings), "rows": [asdict(row) for row in made.rows],
    }  # fmt: skip
    return found if made.fits else {**found, "error": made.reason, "available_bytes": made.budget_bytes}


def _page(document: dict[str, Any], made: Plan) -> str:
    profile, cached = document["profile"], document["cached"]
    title = safe(document["file"], 200) + (f", profile {profile}" if profile else "")
    rows = [[row.name.removesuffix("_bytes").replace("weights_", "  "), _value(row), row.provenance, row.reason]
            for row in made.rows if row.name != "verdict"]  # fmt: skip
    if cached is not None:
        rows.append(["cached", f"{cached:.0%}", "measured", "share of the file in the page cache now"])
    lines = [title, columns([["", "value", "from", "because"], *rows], right=(1,))]
    return "\n".join([*lines, *(f"warning: {warning}" for warning in made.warnings),
                      *([f"{made.verdict}: {made.reason}"] if made.fits else [])])  # fmt: skip


def _value(row: Row) -> str:
    if isinstance(row.value, int):
        if row.name.endswith("_per_s"):
            return f"{_size(row.value)}/s"
        return _size(row.value) if row.name.endswith(("_bytes", "_per_token")) else f"{row.value:,}"
    return str(row.value)


def _rank(folder: Path, settings: Settings, as_json: bool, is_measured: bool) -> int:
    files = one_each(sorted(path for path in folder.glob("*.gguf") if path.is_file()))
    if not files:
        raise BadModelFile(f"{folder} holds no file named *.gguf; name another folder, or one of the folders in it")
    if is_measured:
        _measure(max(files, key=lambda path: path.stat().st_size), settings)
    machine = read_machine()
    models = sorted((_model(path, settings, machine) for path in files), key=_rank_of)
    budget = budget_of(machine)
    if as_json:
        print(json.dumps({"folder": str(folder), "budget_bytes": budget.n_bytes, "budget_reason": budget.reason,
                          "models": models}))  # fmt: skip
    else:
        print(_table(models, f"{safe(str(folder), 200)}: {human_bytes(budget.n_bytes)} to use ({budget.reason})"))
    return 0 if any(model["verdict"] != "BAD" for model in models) else 3


def _model(path: Path, settings: Settings, machine: Machine) -> dict[str, Any]:
    seen = look(settings.model_copy(update={"model": str(path)}), machine)
    names = ("fit", "n_ctx", "load_mode", "weights_bytes", "kv_bytes", "total_bytes", "spare_bytes", "tok_s", "bound",
             "disk_bytes_per_token")  # fmt: skip
    numbers = {name: getattr(seen.plan, name) if seen.plan else None for name in names}
    size = seen.facts.file_bytes if seen.facts else None
    return {"file": path.name, "verdict": seen.verdict, "reason": seen.reason, "size": size, **numbers,
            "disk_rate": _disk_rate(seen), "cached": cached_share(path)}  # fmt: skip


def _disk_rate(seen: Look) -> str | None:
    """Whether the disk's speed was measured or assumed, where a plan goes by it."""
    rows = seen.plan.rows if seen.plan else ()
    return next((row.provenance for row in rows if row.name == "disk_bytes_per_s"), None)


def _rank_of(model: dict[str, Any]) -> tuple[int, float, str]:
    """Of what stays in memory the largest first, since it knows most; of the rest the fastest, or what lacks least."""
    if model["fit"] in ("resident", "streams"):
        order = -model["weights_bytes"] if model["fit"] == "resident" else -model["tok_s"]
    else:
        order = model["total_bytes"] or 0
    return ORDER.index(model["fit"]), order, model["file"]


def _table(models: list[dict[str, Any]], title: str) -> str:
    rows = [["MODEL", "WEIGHTS", "CTX", "KV", "TOTAL", "SPARE", "TOK/S", "FIT"]]
    for model in models:
        sizes = [_size(model[name]) for name in ("weights_bytes", "kv_bytes", "total_bytes", "spare_bytes")]
        n_ctx = f"{model['n_ctx']:,}" if model["n_ctx"] else "-"
        pace = _pace(model["tok_s"]) if model["fit"] not in ("no", None) else "-"
        rows.append([safe(model["file"], 60), sizes[0], n_ctx, *sizes[1:], pace, _fit(model)])
    reasons = [model["reason"] for model in models if model["fit"] in WORDS]
    if any(model["fit"] in ("streams", "hopeless") and model["disk_rate"] != "measured" for model in models):
        reasons.append("The disk's speed is assumed, and with it what streams; colibri plan DIR --measure measures it.")
    return "\n".join([title, columns(rows, right=(1, 2, 3, 4, 5, 6)), *reasons])


def _fit(model: dict[str, Any]) -> str:
    """Where the weights will be, in words."""
    if model["fit"] in WORDS:
        return WORDS[model["fit"]]
    is_mapped = model["load_mode"] == "mmap"
    if model["fit"] == "streams":
        return "mapped, reads from disk" if is_mapped else "streams"
    where = "mapped, all in memory" if is_mapped else str(model["load_mode"])
    return f"{where}, tight" if model["verdict"] == "TIGHT" else where


def _pace(tok_s: float) -> str:
    return f"{tok_s:,.0f}" if tok_s >= 100 else f"{tok_s:.1f}" if tok_s >= 1 else f"{tok_s:.2f}"


def _size(n_bytes: int | None) -> str:
    if n_bytes is None:
        return "-"
    return f"-{human_bytes(-n_bytes)}" if n_bytes < 0 else human_bytes(n_bytes)
