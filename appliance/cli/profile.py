"""`colibri profile`: the named sets of settings, looked at and changed on the disk or in a running service.

Not here: what each action does (profile_files.py, profile_diff.py, profile_rehearse.py, profile_apply.py).
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from appliance.cli.parser import Parser
from appliance.cli.remote import add_remote

NAME = "profile"
HELP = "named sets of settings: list, check, compare, change, put in force"

# action: (module, function, the sentence of the help)
ACTIONS = {
    "list": ("profile_files", "show_all", "every profile, and whether it fits this machine"),
    "check": ("profile_files", "check", "everything that is wrong, by line, with the nearest known name"),
    "show": ("profile_files", "show", "the text of a profile or of one of its versions"),
    "history": ("profile_files", "history", "every version: when, by whom, why"),
    "diff": ("profile_diff", "diff", "what differs between two, and what that does"),
    "rehearse": ("profile_rehearse", "rehearse", "run its longest input here: peak memory, and tok/s at the end"),
    "set": ("profile_change", "set_keys", "change single keys; comments stay, the version before is kept"),
    "copy": ("profile_change", "copy", "make a profile of another, or bring back a version"),
    "delete": ("profile_change", "delete", "take an edit away; a packaged profile is as shipped again"),
    "apply": ("profile_apply", "apply", "put a profile in force in the running service, and watch"),
    "abort": ("profile_apply", "abort", "end a swap under way; the profile before serves on"),
}
EXAMPLES = """\
examples:
  colibri profile list
  colibri profile check                              all of them; exit code 2 if one is wrong
  colibri profile check /tmp/new.yaml
  colibri profile diff quick-verify long-doc
  colibri profile diff long-doc@3 long-doc           two versions of one
  colibri profile rehearse long-doc --prompt-file longest.txt     before a night depends on it
  colibri profile set long-doc ctx_size=8192 temp=0.1 --note "shorter letters"
  colibri profile copy long-doc@3 long-doc           bring version 3 back
  colibri profile apply long-doc                     exit code 0 only if it serves then
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=Parser)
    made = {}
    for name, (_, _, words) in ACTIONS.items():
        made[name] = one = actions.add_parser(name, help=words, description=f"{words[:1].upper()}{words[1:]}.")
        one.add_argument("--json", action="store_true", help="one JSON object on stdout")
        words = "folder with the edits (default: COLIBRI_DATA_DIR, else the user's data folder)"
        one.add_argument("--data-dir", type=Path, metavar="DIR", help=words)
    for name in ("list", "check", "diff", "rehearse"):
        made[name].add_argument("--models-dir", type=Path, metavar="DIR", help="folder with GGUF files")
    made["check"].add_argument("what", nargs="*", metavar="NAME|FILE", help="default: every profile there is")
    made["show"].add_argument("name", metavar="NAME[@REV]")
    made["history"].add_argument("name", metavar="NAME")
    made["diff"].add_argument("old", metavar="OLD", help="NAME, NAME@REV or a file")
    made["diff"].add_argument("new", metavar="NEW", nargs="?", help="default: OLD, compared with its version before")
    made["rehearse"].add_argument("name", metavar="NAME")
    made["rehearse"].add_argument("--prompt-file", type=Path, metavar="F",
                                  help="the longest real input; without it made-up text fills the context")  # fmt: skip
    made["rehearse"].add_argument("-n", "--tokens", type=int, default=32, metavar="N",
                                  help="tokens to answer with at the end (default: 32)")  # fmt: skip
    made["set"].add_argument("name", metavar="NAME")
    made["set"].add_argument("values", nargs="+", metavar="KEY=VALUE", help="KEY= for its default again")
    made["copy"].add_argument("old", metavar="OLD[@REV]")
    made["copy"].add_argument("name", metavar="NEW", help="may be OLD itself: that version is in force again")
    made["delete"].add_argument("name", metavar="NAME")
    for name in ("set", "copy"):
        made[name].add_argument("--note", default="", metavar="TEXT", help="why, for the history")
    made["apply"].add_argument("name", metavar="NAME[@REV]")
    made["apply"].add_argument("--note", default="", metavar="TEXT", help="why, for the service's log")
    made["abort"].add_argument("id", nargs="?", metavar="ID", help="default: the one under way")
    for name in ("apply", "abort"):
        made[name].add_argument("--wait", action=argparse.BooleanOptionalAction, default=True,
                                help="stay until it ends and show each stage (default)")  # fmt: skip
        add_remote(made[name])


def run(args: argparse.Namespace) -> int:
    from importlib import import_module

    module, function, _ = ACTIONS[args.action]
    act: Callable[[argparse.Namespace], int] = getattr(import_module(f"appliance.cli.{module}"), function)
    return act(args)
