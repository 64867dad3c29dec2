"""`colibri keys`: adds, lists and revokes keys in the service's key file. Not here: the file's form, what keys open.

A running service takes a change over within seconds. The secret of an added key is printed once; the file keeps its
digest alone.
"""

import argparse
import json
import sys
from pathlib import Path

from appliance.cli.columns import columns
from appliance.cli.flags import data_dir
from appliance.key_lines import NAME as FORM
from appliance.key_lines import ROLES, Key, digest, lane, line_of, names, rate
from appliance.keys import change, new_secret, open_keys, read_keys
from engine.errors import UsageError

NAME = "keys"
HELP = "who may use the service: add, list, revoke keys"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n  colibri keys add editor --rate 60\n"
        "  colibri keys add night --lane batch --profiles batch-tag,quick-verify\n"
        "  colibri keys add prometheus --role metrics\n  colibri keys list --json\n  colibri keys revoke editor\n"
        "  docker compose exec colibri colibri keys add editor      # inside the container"
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    add = verbs.add_parser("add", help="make a key and print its secret, this once")
    add.add_argument("name", metavar="NAME", help="how lists and logs call it")
    add.add_argument("--role", choices=ROLES, default="user", help="user: the model; admin: everything; metrics: "
                     "/metrics alone (default: user)")  # fmt: skip
    add.add_argument("--lane", metavar="LANE", help="lane its requests wait in (default: interactive)")
    add.add_argument("--rate", metavar="N", help="most requests in a minute (default: no limit)")
    add.add_argument("--models", metavar="LIST", help="names of models it may use, with commas (default: all)")
    add.add_argument("--profiles", metavar="LIST", help="profiles it may use, with commas (default: all)")
    listing = verbs.add_parser("list", help="all keys of the file, without their secrets")
    revoke = verbs.add_parser("revoke", help="take a key away; a running service refuses it within seconds")
    revoke.add_argument("name", metavar="NAME", help="its name in the list")
    for verb in (add, listing, revoke):
        verb.add_argument("--data-dir", metavar="DIR", help="the service's data folder (default: COLIBRI_DATA_DIR)")
        verb.add_argument("--key-file", type=Path, metavar="FILE", help="the file itself (default: keys in there)")
        verb.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    path = args.key_file or data_dir(args) / "keys"
    verb = {"add": _add, "list": _list, "revoke": _revoke}[args.verb]
    verb(args, path)
    return 0


def _add(args: argparse.Namespace, path: Path) -> None:
    if FORM.fullmatch(args.name) is None or "=" in args.name:
        raise UsageError(f"'{args.name}' is no name of a key; use letters, digits and . _ : @ -, at most 64")
    if not path.exists() and args.key_file is None:
        open_keys(path.parent)  # before the first start: the service would make them
    secret = new_secret(args.role)
    key = Key(
        args.name, args.role, digest(secret),
        lane=lane(args.lane) if args.lane else "interactive", rate=rate(args.rate) if args.rate else None,
        models=names(args.models) if args.models else (), profiles=names(args.profiles) if args.profiles else (),
    )  # fmt: skip
    change(path, line=line_of(key))
    if args.json:
        print(json.dumps({**_facts(key), "key": secret}))
        return
    print(secret)
    print(f"That is the key '{key.name}', shown this once: {path} keeps its digest.", file=sys.stderr)


def _list(args: argparse.Namespace, path: Path) -> None:
    keys = read_keys(path)
    if args.json:
        print(json.dumps({"keys": [_facts(key) for key in keys]}))
        return
    width = max(len(key.name) for key in keys)
    print(columns([(key.name.ljust(width), _words(key)) for key in keys]))


def _revoke(args: argparse.Namespace, path: Path) -> None:
    change(path, without=args.name)
    if args.json:
        print(json.dumps({"revoked": args.name}))
    else:
        print(f"The key '{args.name}' opens nothing any more; a running service notices within seconds.",
              file=sys.stderr)  # fmt: skip


def _facts(key: Key) -> dict[str, object]:
    return {"name": key.name, "role": key.role, "lane": key.lane, "rate": key.rate,
            "models": list(key.models), "profiles": list(key.profiles)}  # fmt: skip


def _words(key: Key) -> str:
    parts = [key.role, f"lane {key.lane}", "no rate" if key.rate is None else f"{key.rate} a minute"]
    parts += [f"models {','.join(key.models)}"] if key.models else []
    parts += [f"profiles {','.join(key.profiles)}"] if key.profiles else []
    return ", ".join(parts)
