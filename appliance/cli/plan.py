"""`colibri plan`: what a model will take on this machine, each number with its reason. Not here: loading it.

    --json    {"fits", "file", "n_ctx", "load_mode", "threads", "weights_bytes", "kv_bytes", "buffers_bytes",
              "needed_bytes", "warnings", "rows": [{"name", "value", "reason", "provenance"}]}; if it does not fit
              {"fits": false, "error", "needed_bytes", "available_bytes", "max_ctx"} and exit code 4
"""

import argparse
import json
from dataclasses import asdict

from appliance.cli.columns import columns, human_bytes, safe
from appliance.cli.flags import ENGINE, MODEL, add_settings, resolved
from appliance.host import read_machine
from appliance.settings import Settings
from engine.errors import DoesNotFit
from engine.gguf.reader import read_gguf
from engine.models.shape import DecoderShape
from engine.planner import Plan, PlanRequest, Row, plan

NAME = "plan"
HELP = "where the memory will go, and whether it fits"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n  colibri plan model.gguf               this machine, the settings' context\n"
        "  colibri plan model.gguf -c 32768      does a context of 32768 fit?\n"
        "  colibri plan model.gguf -ctk q8_0 -ctv q8_0 --load-mode mmap\n\n"
        "Exit code 4 when it does not fit; the smallest change that would fit is on stderr"
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="default: the model of the settings")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_settings(parser, MODEL, ENGINE)


def run(args: argparse.Namespace) -> int:
    if args.file is not None:
        args.model = args.file
    settings = resolved(args).settings
    gguf = read_gguf(settings.model_path())
    try:
        made = plan(gguf, DecoderShape.read(gguf), read_machine(), request_of(settings))
    except DoesNotFit as error:
        if args.json:
            print(json.dumps({"fits": False, "error": error.message, **error.extra}))
        raise
    print(json.dumps(_json(gguf.path.name, made)) if args.json else _page(gguf.path.name, made))
    return 0


def request_of(settings: Settings) -> PlanRequest:
    """The planner's part of the settings."""
    return PlanRequest(
        n_ctx=settings.ctx_size,
        type_k=settings.cache_type_k,
        type_v=settings.cache_type_v,
        load_mode=settings.load_mode,
        ubatch_size=settings.ubatch_size,
        parallel=settings.parallel,
        threads=settings.threads,
    )


def _json(name: str, made: Plan) -> dict[str, object]:
    rows = [asdict(row) for row in made.rows]
    facts = {key: value for key, value in asdict(made).items() if key != "rows"}
    return {"file": name, "fits": True, **facts, "warnings": list(made.warnings), "rows": rows}


def _page(name: str, made: Plan) -> str:
    rows = [[row.name.removesuffix("_bytes"), _value(row), row.provenance, row.reason] for row in made.rows]
    warnings = [f"warning: {warning}" for warning in made.warnings]
    return "\n".join([safe(name, 200), columns([["", "value", "from", "because"], *rows], right=(1,)), *warnings])


def _value(row: Row) -> str:
    if isinstance(row.value, int):
        return human_bytes(row.value) if row.name.endswith("_bytes") else f"{row.value:,}"
    return row.value
