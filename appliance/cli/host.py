"""`colibri host`: show and tune two kernel settings, dry by default, with undo. Not here: the tuning (tune.py)."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from appliance.machine.tune import Setting, Undone, apply, numa_nodes, plan, revert, settings
from appliance.machine.tune_notes import STATE_NAME, boot_id, recorded

NAME = "host"
HELP = "show or tune the kernel's huge pages and CPU governor, with undo"
ACTIONS = ("show", "plan", "apply", "revert", "status")
# The settings are the machine's, so are the notes about them: root applies, everybody may ask.
STATE_DIR = "/var/lib/colibri"
TOLD = {
    "done": "back to", "already": "already", "foreign": "changed by somebody else since, left alone; it was",
    "gone": "its CPU is switched off, the note is kept; it was", "stuck": "the kernel does not take back, note kept:",
}  # fmt: skip
STANDS = {
    "done": "in force", "already": "back at its old value", "foreign": "changed by somebody else since",
    "gone": "its CPU is switched off", "stuck": "in force; this kernel does not offer the old value any more",
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show what this host's kernel settings are and change them so that they can be\n"
        "put back exactly."
        " apply and revert only say what they would do until --yes is given."
    )
    parser.epilog = (
        "examples:\n  colibri host                        what is set now\n"
        "  colibri host apply                  what would change\n"
        "  sudo colibri host apply --yes       change it, noting the old values\n"
        "  colibri host status                 what of it is in force\n"
        "  sudo colibri host revert --yes      put them back\n\n"
        "The service starts with or without it. A restart of the machine undoes it too."
    )
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="show", help="default: show")
    parser.add_argument("--yes", action="store_true", help="really write; without it nothing is changed")
    parser.add_argument("--thp", choices=("madvise", "always"), default="madvise",
                        help="huge pages: madvise where they are off (default), or always")  # fmt: skip
    parser.add_argument("--governor", default="performance", metavar="NAME", help="default: performance")
    parser.add_argument("--only", choices=("thp", "governor"), help="leave the other setting as it is")
    parser.add_argument("--state", type=Path, metavar="FILE",
                        help=f"where old values are noted (default: {STATE_DIR}/{STATE_NAME})")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--root", type=Path, default=Path("/"), help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    state = args.state or Path(os.environ.get("COLIBRI_DATA_DIR") or STATE_DIR) / STATE_NAME
    if args.action == "status":
        return _status(args, state)
    if args.action == "revert":
        return _revert(args, state)
    rows = [r for r in settings(args.root, args.thp, args.governor) if args.only in (None, r.name.split(".")[0])]
    if args.action == "show":
        answer: dict[str, object] = {"settings": [asdict(row) for row in rows], "numa": numa_nodes(args.root)}
        _print(args.json, answer, _table(rows) + _nodes(args.root))
        return 0
    dry = args.action == "plan" or not args.yes
    changes = plan(rows) if dry else apply(args.root, state, plan(rows))
    words = [f"/{c.path}: {c.old} {'would become' if dry else 'is now'} {c.new}" for c in changes]
    answer = {"dry_run": dry, "state": str(state), "changes": [asdict(c) for c in changes]}
    _print(args.json, answer, (words or ["nothing to change"]) + _dry(bool(words) and dry))
    return 0


def _status(args: argparse.Namespace, state: Path) -> int:
    notes = revert(args.root, state, dry=True)
    is_void = not notes and bool(recorded(state))
    words = [f"/{u.change.path}: was {u.change.old}, set to {u.change.new}; {STANDS[u.outcome]}" for u in notes]
    if is_void:
        words = ["the machine was started anew since our changes, which undid them"]
    answer = {"state": str(state), "boot": boot_id(args.root), "void": is_void, "changes": _rows(notes)}
    _print(args.json, answer, words or ["nothing of this host was changed by us"])
    return 0


def _revert(args: argparse.Namespace, state: Path) -> int:
    undone = revert(args.root, state, dry=not args.yes)
    told = TOLD if args.yes else TOLD | {"done": "would go back to"}
    words = [f"/{u.change.path}: {told[u.outcome]} {u.change.old}" for u in undone]
    answer = {"dry_run": not args.yes, "changes": _rows(undone)}
    _print(args.json, answer, (words or ["nothing to put back"]) + _dry(bool(words) and not args.yes))
    stuck = [u for u in undone if u.outcome == "stuck"]
    if stuck and args.yes:
        print(f"colibri: error: {len(stuck)} of {len(undone)} values could not be put back", file=sys.stderr)
    return 1 if stuck else 0


def _rows(notes: list[Undone]) -> list[dict[str, str]]:
    return [{**asdict(u.change), "outcome": u.outcome, "value": u.value} for u in notes]


def _dry(is_dry: bool) -> list[str]:
    return ["nothing was written; add --yes to apply or revert"] if is_dry else []


def _table(rows: list[Setting]) -> list[str]:
    """Equal governors fold into one line: 64 CPUs tell one thing."""
    lines, seen = [], set()
    for row in rows:
        group = row.name.split(".")[0]
        if (group, row.value, row.wanted) in seen:
            continue
        seen.add((group, row.value, row.wanted))
        same = sum(r.name.split(".")[0] == group and r.value == row.value and r.wanted == row.wanted for r in rows)
        name = f"{group} x{same}" if same > 1 else group
        lines.append(f"{name:<14} {row.value:<12} {'-> ' + row.wanted if row.wanted else 'ok':<16} {row.reason}")
    if not any(row.name == "thp" for row in rows):
        lines.append(f"{'thp':<14} {'?':<12} {'':<16} this kernel has no transparent huge pages, or hides them")
    if not any(row.name.startswith("governor") for row in rows):
        lines.append(f"{'governor':<14} {'?':<12} {'':<16} no frequency control here, as in most virtual machines")
    return lines


def _nodes(root: Path) -> list[str]:
    lines = []
    for node in numa_nodes(root):
        n_bytes = node["memory_bytes"]
        size = f"{n_bytes / 2**30:.1f} GiB" if isinstance(n_bytes, int) else "? GiB"
        lines.append(f"{'numa node ' + str(node['node']):<14} cpus {node['cpus']}, {size}")
    return lines


def _print(as_json: bool, answer: dict[str, object], lines: list[str]) -> None:
    print(json.dumps(answer) if as_json else "\n".join(lines))
