"""Profiles as they lie on the disk: list, check, show, history. Not here: changing them, the running service.

    list --json       {"folder", "last", "profiles": [{"name", "rev", "etag", "source", "state", "n_errors",
                      "n_warnings", "summary", "has_draft", "fit", ...}]}; last is what served last
    check --json      {"files": [{"file", "name", "problems": [{"line", "col", "severity", "path", "message",
                      "hint"}]}], "n_errors", "n_warnings"}
    show --json       {"name", "rev", "etag", "source", "saved", "by", "note", "text", "values", "problems"}
    history --json    {"name", "history": [{"rev", "saved", "by", "note", "etag"}]}
"""

import argparse
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from appliance.cli.columns import columns, safe
from appliance.cli.flags import data_dir
from appliance.machine.host import read_machine
from appliance.model_files import existing_model
from appliance.profiles import MOST_BYTES, NoSuchProfile, Problem, ProfileStore, StoredText, examine
from appliance.profiles.disk import read_bounded
from appliance.profiles.store import etag_of
from appliance.rehearsals import last
from appliance.settings import Settings, resolve
from appliance.swaps.journal import last_served
from appliance.swaps.planning import fit_row
from engine.errors import UsageError


def store_of(args: argparse.Namespace) -> ProfileStore:
    return ProfileStore(data_dir(args))


def settings_of(args: argparse.Namespace, name: str, values: dict[str, Any]) -> Settings:
    """What a service started here would make of the profile."""
    flags = {"data_dir": data_dir(args), "models_dir": getattr(args, "models_dir", None)}
    return resolve(flags, os.environ, {**values, "name": name}).settings


def name_and_rev(words: str) -> tuple[str, int | None]:
    """`long-doc@3` is its version 3."""
    name, at, rev = words.partition("@")
    if at and not (rev.isascii() and rev.isdecimal() and len(rev) < 10):
        raise UsageError(f"'{words[:80]}' should read NAME@REV, REV being a number (colibri profile history {name})")
    return name, int(rev) if at else None


def is_file_name(words: str) -> bool:
    return "/" in words or words.endswith((".yaml", ".yml"))


def read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"the file {path} cannot be read: {error.strerror}") from None


def when(epoch: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(epoch))


def show_all(args: argparse.Namespace) -> int:
    store = store_of(args)
    rows = [row for name in store.names(drafts=True) if (row := _row(args, store, name))]
    for name in store.misnamed():
        print(f"colibri: {store.folder / name} is not listed: a profile's file is NAME.yaml, NAME being small letters, "
              "digits, '.', '_' and '-'", file=sys.stderr)  # fmt: skip
    last = last_served(data_dir(args))
    if args.json:
        print(json.dumps({"folder": str(store.folder), "last": last, "profiles": rows}, ensure_ascii=False))
        return 0
    table = [("", "NAME", "REV", "STATE", "MODEL", "CTX", "KV", "FIT", "FOR")]
    for row in rows:
        kinds = {row["type_k"], row["type_v"]} - {None}
        table.append((
            "*" if row["name"] == last else " ", row["name"], str(row["rev"]), _state(row),
            safe(row["model"] or "-", 40), str(row["ctx_size"] or "-"), "/".join(sorted(kinds)) or "-", row["fit"],
            safe(row["summary"], 200),
        ))  # fmt: skip
    print(columns(table, right=(2, 5)))
    for row in rows:
        if row["fit"] in ("NO", "BAD", "PAGES"):
            print(f"{row['name']}: {row['fit']}: {row['fit_reason']}")
    print(f"edits lie in {store.folder}" + ("; * served last" if last else ""), file=sys.stderr)
    return 0


def _row(args: argparse.Namespace, store: ProfileStore, name: str) -> dict[str, Any] | None:
    try:
        stored: StoredText | None = store.text(name)
        checked = store.examine(name)
    except NoSuchProfile:
        if store.draft(name) is None:  # deleted since it was listed
            return None
        stored, checked = None, examine("", name, ())
    n_errors = sum(problem.severity == "error" for problem in checked.problems) if stored else 0
    plan: dict[str, Any] = {}
    if stored and checked.is_good:
        plan = fit_row(settings_of(args, name, checked.values), read_machine())
    keys = ("model", "type_k", "type_v", "ctx_size", "fit_reason")
    return {
        "name": name, "rev": stored.rev if stored else 0, "etag": stored.etag if stored else None,
        "source": stored.source if stored else "edited",
        "state": "draft" if stored is None else "errors" if n_errors else "valid", "n_errors": n_errors,
        "n_warnings": len(checked.problems) - n_errors if stored else 0, "summary": checked.summary,
        "has_draft": store.draft(name) is not None, **dict.fromkeys(keys), "fit": "?", **plan,
    }  # fmt: skip


def _state(row: dict[str, Any]) -> str:
    words = f"{row['n_errors']} error{'s' * (row['n_errors'] != 1)}" if row["n_errors"] else row["state"]
    return f"{words}, draft" if row["has_draft"] and row["state"] != "draft" else str(words)


def check(args: argparse.Namespace) -> int:
    """One line per problem, as compilers write them; exit code 2 if one is an error."""
    store = store_of(args)
    find_model = partial(existing_model, models_dir=settings_of(args, "", {}).models_dir)
    files: list[dict[str, Any]] = []
    for what in args.what or store.names():
        if is_file_name(what):
            path, name, raw = Path(what), Path(what).stem, read_file(Path(what))
            near = [*store.names(), *(p.stem for p in path.parent.glob("*.yaml"))]
        else:
            stored = store.text(what)
            path = (store.folder if stored.source == "edited" else store.packaged) / f"{what}.yaml"
            # The store's way of reading: a pipe of that name would block for ever.
            name, raw, near = what, read_bounded(path, MOST_BYTES) or b"", store.names()
        problems: list[Problem] = examine(raw, name, near, find_model).problems
        problems += _unrehearsed(args, name, raw, problems)
        files.append({"file": str(path), "name": name, "problems": [problem.json() for problem in problems]})
        if not args.json:
            for problem in problems:
                print(f"{path}:{problem.line}:{problem.col}: {problem.severity}: {safe(problem.sentence(), 400)}")
    found = [problem["severity"] for file in files for problem in file["problems"]]
    n_errors, n_warnings = found.count("error"), found.count("warning")
    if args.json:
        print(json.dumps({"files": files, "n_errors": n_errors, "n_warnings": n_warnings}, ensure_ascii=False))
    else:
        words = [f"{n} {word}{'s' * (n != 1)}" for n, word in ((n_errors, "error"), (n_warnings, "warning"))]
        print(f"{len(files)} profile{'s' * (len(files) != 1)}: {' and '.join(words)}", file=sys.stderr)
    return UsageError.exit_code if n_errors else 0


def _unrehearsed(args: argparse.Namespace, name: str, raw: bytes, problems: list[Problem]) -> list[Problem]:
    """What starts by the clock has nobody who looks on: its longest input must have been run before."""
    place = next((p for p in problems if p.path == "schedule"), None)
    if place is None or last(data_dir(args), name, etag_of(raw)) is not None:
        return []
    words = f"this text was never rehearsed; run 'colibri profile rehearse {name}' before a clock starts it"
    return [Problem(place.line, place.col, "warning", "schedule", words, "")]


def show(args: argparse.Namespace) -> int:
    store = store_of(args)
    stored = store.text(*name_and_rev(args.name))
    if not args.json:
        sys.stdout.write(stored.text if stored.text.endswith("\n") else f"{stored.text}\n")
        return 0
    checked = store.examine(stored.name, stored.text)
    shown = {key: getattr(stored, key) for key in ("name", "rev", "etag", "source", "saved", "by", "note", "text")}
    problems = [problem.json() for problem in checked.problems]
    print(json.dumps({**shown, "values": checked.values, "problems": problems}, ensure_ascii=False))
    return 0


def history(args: argparse.Namespace) -> int:
    versions = store_of(args).history(args.name)
    if args.json:
        print(json.dumps({"name": args.name, "history": versions}, ensure_ascii=False))
        return 0
    rows = [(str(v["rev"]), when(v["saved"]), safe(v["by"], 40) or "-", v["etag"], safe(v["note"], 200))
            for v in versions]  # fmt: skip
    print(columns([("REV", "SAVED", "BY", "TAG", "WHY"), *rows], right=(0,)))
    return 0
