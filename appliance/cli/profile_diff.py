"""`colibri profile diff`: two profiles or versions side by side, as text and in what changes. Not here: changing them.

    --json    {"from": {"name", "rev"}, "to": {...}, "text": [lines of a unified diff], "changes": [{"key", "from",
              "to", "kind", "effect"}], "restart", "verdict", "reason", "warnings", "errors"}; without both sides being
              right "changes" is null and "errors" says why
"""

import argparse
import json
import sys
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

from appliance.cli.columns import columns, safe
from appliance.cli.profile_files import is_file_name, name_and_rev, read_file, settings_of, store_of
from appliance.machine.host import read_machine
from appliance.profiles import Checked, Profile, ProfileStore, etag_of, examine
from appliance.settings import Settings
from appliance.swaps.planning import InForce, plan_document
from engine.errors import ColibriError, UsageError

PLANNED = ("changes", "restart", "verdict", "reason", "warnings", "errors")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two; `settings` is None where the text is wrong, and `error` says why."""

    label: str
    name: str
    rev: int
    checked: Checked
    settings: Settings | None
    error: str

    @property
    def text(self) -> str:
        return self.checked.document.text

    def profile(self) -> Profile:
        tag = etag_of(self.text)
        return Profile(self.name, self.rev, tag, self.checked.summary, "edited", self.text, self.checked.values)


def diff(args: argparse.Namespace) -> int:
    store = store_of(args)
    new = args.new or args.old
    old = args.old if args.new else _before(store, args.old)
    sides = _side(args, store, old), _side(args, store, new)
    before, after = (side.text.splitlines() for side in sides)
    lines = list(unified_diff(before, after, sides[0].label, sides[1].label, lineterm="", n=2))
    plan = _plan(*sides)
    if args.json:
        labels = [{"name": side.name, "rev": side.rev} for side in sides]
        print(json.dumps({"from": labels[0], "to": labels[1], "text": lines, **plan}, ensure_ascii=False))
        return 0
    print("\n".join(safe(line, 400) for line in lines) if lines else "the texts are equal")
    print(_effects(plan))
    for words in (*plan["warnings"], *plan["errors"]):
        print(f"colibri: {words}", file=sys.stderr)
    return 0


def _before(store: ProfileStore, words: str) -> str:
    """The version before the one that `words` names."""
    if is_file_name(words):
        raise UsageError(f"{words} is compared with what? give a second name or file")
    name, rev = name_and_rev(words)
    versions = [v["rev"] for v in store.history(name)]
    rev = versions[0] if rev is None else rev
    older = [r for r in versions if r < rev]
    if not older:
        raise UsageError(f"'{name}' has no version before {rev}; name what it is compared with")
    return f"{name}@{older[0]}"


def _side(args: argparse.Namespace, store: ProfileStore, words: str) -> Side:
    if is_file_name(words):
        path = Path(words)
        name, rev, label = path.stem, 0, words
        checked = examine(read_file(path), name, [*store.names(), *(p.stem for p in path.parent.glob("*.yaml"))])
    else:
        stored = store.text(*name_and_rev(words))
        name, rev, label = stored.name, stored.rev, f"{stored.name} rev {stored.rev}"
        checked = store.examine(name, stored.text)
    if not checked.is_good:
        first = next(problem for problem in checked.problems if problem.severity == "error")
        return Side(label, name, rev, checked, None, f"{label} line {first.line}: {first.sentence()}")
    try:
        return Side(label, name, rev, checked, settings_of(args, name, checked.values), "")
    except ColibriError as error:
        return Side(label, name, rev, checked, None, error.message)


def _plan(old: Side, new: Side) -> dict[str, Any]:
    """What a service that runs `old` would do for `new`; bytes are known where the model can be read."""
    if old.settings is None or new.settings is None:
        errors = [side.error for side in (old, new) if side.error]
        return {**dict.fromkeys(PLANNED), "warnings": [], "errors": errors}
    in_force = InForce(old.name, old.rev, old.settings)
    document = plan_document(new.profile(), new.settings, read_machine(), in_force=in_force, freed_bytes=0,
                             requests={}, past=[], overruled={})  # fmt: skip
    return {key: document[key] for key in PLANNED}


def _effects(plan: dict[str, Any]) -> str:
    if plan["changes"] is None:
        return "what the change does is not known while one of them is wrong"
    if not plan["changes"]:
        return "no setting differs"
    rows = [("KEY", "FROM", "TO", "EFFECT")]
    rows += [(c["key"], _value(c["from"]), _value(c["to"]), safe(c["effect"], 200)) for c in plan["changes"]]
    cost = "the worker is started anew" if plan["restart"] else "nothing is stopped"
    return f"{columns(rows)}\n{cost}; {plan['verdict']}: {plan['reason']}"


def _value(value: object) -> str:
    shown = ", ".join(value) if isinstance(value, list) else str(value)
    return "-" if value is None or not shown else safe(shown, 40)
