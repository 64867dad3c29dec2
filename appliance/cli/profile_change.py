"""`colibri profile set|copy|delete`: versions made on the disk. Not here: putting them in force (profile_apply.py).

    set, copy --json    {"name", "rev", "etag", "values"}
    delete --json       {"name", "deleted": true, "rev"}; rev is what counts now, null where nothing does
"""

import argparse
import json
import sys
from typing import Any

from appliance.cli.profile_files import name_and_rev, store_of
from appliance.cli.remote import who
from appliance.profiles import NoSuchProfile, Profile, ProfileStore, path_of
from appliance.profiles.edit import set_values
from appliance.profiles.problems import nearest
from appliance.profiles.schema import ALSO, KEYS, takes
from appliance.profiles.strict import TOP_LEFT, Scalar
from appliance.profiles.values import MISSING, value_of
from engine.errors import UsageError

OWN = ("summary",)


def set_keys(args: argparse.Namespace) -> int:
    store = store_of(args)
    stored = store.text(args.name)
    changes = dict(_wanted(words) for words in args.values)
    text = set_values(stored.text, changes)
    made = store.save(args.name, text, if_match=stored.etag, by=who(), note=args.note)
    assert isinstance(made, Profile)
    return _told(args, store, made, made.rev != stored.rev)


def copy(args: argparse.Namespace) -> int:
    store = store_of(args)
    old, rev = name_and_rev(args.old)
    stored = store.text(old, rev)
    name = name_and_rev(args.name)[0]
    if name == old and rev is None:
        raise UsageError(f"'{name}' is there already; name a version of it to bring back, like {name}@1")
    text = stored.text if name == old else set_values(stored.text, {"name": name})
    there = store.text(name).etag if name in store.names() else None
    if there and name != old:
        raise UsageError(f"there is a profile '{name}' already; delete it first, or change it with 'profile set'")
    note = args.note or f"copy of {old} rev {stored.rev}"
    made = store.save(name, text, if_match=there, by=who(), note=note)
    assert isinstance(made, Profile)
    return _told(args, store, made, made.etag != there)


def delete(args: argparse.Namespace) -> int:
    store = store_of(args)
    store.delete(args.name, if_match=store.text(args.name).etag, by=who())
    try:
        rev: int | None = store.text(args.name).rev
    except NoSuchProfile:
        rev = None
    if args.json:
        print(json.dumps({"name": args.name, "deleted": True, "rev": rev}))
    else:
        print(f"{args.name} is as shipped again" if rev == 0 else f"{args.name} is deleted; its history is kept")
    return 0


def _wanted(words: str) -> tuple[str, Any]:
    """`temp=0.5` as the path in the file and the value that its key wants."""
    given, equals, text = words.partition("=")
    key = given.rpartition(".")[2].replace("-", "_")
    if not equals:
        raise UsageError(f"'{words[:80]}' should read KEY=VALUE, for instance ctx_size=8192")
    if key not in (*KEYS, *OWN) or (given != key and "." in given and path_of(key) != given):
        near = key if key in KEYS else ALSO.get(key) or nearest(key, (*KEYS, *OWN))
        tail = f"; did you mean '{path_of(near)}'?" if near else "; docs/profile.md lists them"
        raise UsageError(f"there is no key '{given[:80]}' in a profile{tail}")
    path = path_of(key)
    if not text:
        return path, None
    found: list[str] = []

    def tell(severity: str, message: str, hint: str) -> None:
        if severity == "error":
            found.append(f"{path} {message}{f'; did you mean {hint!r}?' if hint else ''}")

    # A shell has no quotes left to show: text is text here, whatever it looks like.
    is_plain = takes(key).base not in ("text", "texts")
    value = value_of(Scalar(TOP_LEFT, text, is_plain), takes(key), tell)
    if found:
        raise UsageError(found[0], param=path)
    return path, None if value is MISSING else value


def _told(args: argparse.Namespace, store: ProfileStore, made: Profile, is_new: bool) -> int:
    if args.json:
        values = {key: list(v) if isinstance(v, tuple) else v for key, v in made.values.items()}
        print(json.dumps({"name": made.name, "rev": made.rev, "etag": made.etag, "values": values}, ensure_ascii=False))
        return 0
    print(f"{made.name} rev {made.rev} {'saved' if is_new else 'is that already, nothing was saved'}")
    for problem in store.examine(made.name).problems:
        print(f"colibri: {made.name} line {problem.line}: {problem.sentence()}", file=sys.stderr)
    if is_new:
        print(f"'colibri profile apply {made.name}' puts it in force in a running service", file=sys.stderr)
    return 0
