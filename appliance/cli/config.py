"""`colibri config explain`: every setting in force, where it came from, why, and who reads it. Not here: changing one.

    --json: {"settings": {key: {"value", "source", "reason", "read_by", "kind"}}, "environment": {NAME: {...}}}
"""

import argparse
import json
import os
from typing import Any

from appliance.cli.flags import ENGINE, MODEL, SAMPLING, SERVING, add_settings, resolved
from appliance.machine.host import read_machine, thread_choice
from appliance.settings import PROCESS_ENV, Resolved, about

NAME = "config"
HELP = "every setting in force, and where it came from"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n  colibri config explain\n"
        "  COLIBRI_PORT=9000 colibri config explain --profile long-doc -t 4 --json\n\n"
        "A COLIBRI_* variable or a profile key that nothing reads is an error (exit\ncode 2)."
    )
    parser.add_argument("action", choices=["explain"], help="explain: list them all")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_settings(parser, MODEL, ENGINE, SERVING, SAMPLING)


def run(args: argparse.Namespace) -> int:
    rows = explained(resolved(args))
    environment = {
        name: {"value": os.environ.get(name), "source": "env" if name in os.environ else "unset", "reason": words,
               "read_by": reader, "kind": "process"}
        for name, (reader, words) in PROCESS_ENV.items()
    }  # fmt: skip
    if args.json:
        print(json.dumps({"settings": rows, "environment": environment}, ensure_ascii=False))
        return 0
    table = [("SETTING", "VALUE", "SOURCE", "WHY", "READ BY")]
    for name, row in (rows | environment).items():
        value = "-" if row["value"] is None or row["value"] == [] else str(row["value"])
        table.append((name, value, row["source"], row["reason"], row["read_by"]))
    # Long values (paths) would push the other columns off the screen.
    widths = [min(44, max(len(line[i]) for line in table)) for i in range(4)]
    for line in table:
        print("  ".join(f"{cell:{width}}" for cell, width in zip(line[:4], widths, strict=True)) + "  " + line[4])
    return 0


def explained(found: Resolved) -> dict[str, dict[str, Any]]:
    """The provenance with what `auto` comes to on this machine."""
    rows = {key: {**row._asdict(), "kind": about(key)["kind"]} for key, row in found.provenance.items()}
    choice = thread_choice(read_machine())
    if found.settings.threads is None:
        rows["threads"].update(value=choice.value, reason=choice.reason)
    if found.settings.threads_batch is None:
        rows["threads_batch"].update(value=rows["threads"]["value"])
    return rows
