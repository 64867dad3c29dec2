"""`python -m tui`: flags and files, the kind of terminal, then the program. Not here: the program (app.py).

Textual is imported last: what it reads from the environment depends on all that comes before.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from tui import config, key_file, pace, tier
from tui.config import OPTIONS, Config, check_flag

REFUSED = 64
BROKEN_START = 70
NICE = 10  # the model comes first on a machine that has only its CPU
FLAGS = {"url": "URL", "key_file": "FILE", "theme": "NAME"}
EPILOG = """keys: ? help   1-8 screens   : command   s change the profile   q quit

COLIBRI_URL, COLIBRI_ADMIN_KEY and COLIBRI_USER are read too, and COLIBRI_TUI_<SETTING>.
`colibri tui config` prints every setting, where it came from and the files that are read.
Without a terminal: colibri status."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="colibri tui", description="Look at a running service, edit profiles, change the one in force.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("what", nargs="?", choices=["config"], metavar="config", help="print the settings and leave")
    for name, metavar in FLAGS.items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, metavar=metavar, type=check_flag(name), help=OPTIONS[name].help)
    parser.add_argument("--readonly", "--view", action="store_true", help=OPTIONS["readonly"].help)
    parser.add_argument("--ascii", action="store_true", help="plain signs only")
    parser.add_argument("--mono", action="store_true", help="no colours")
    parser.add_argument("--mouse", action="store_true", help="let the program have the mouse")
    parser.add_argument("--rate", metavar="SECONDS", type=check_flag("refresh_s"), help=OPTIONS["refresh_s"].help)
    parser.add_argument("--screen", metavar="NAME", type=check_flag("start_screen"), help=OPTIONS["start_screen"].help)
    return parser


def _flags(args: argparse.Namespace) -> dict[str, str]:
    named = {name: getattr(args, name) for name in FLAGS} | {"refresh_s": args.rate, "start_screen": args.screen}
    switches = {name: "on" for name in ("readonly", "ascii", "mono", "mouse") if getattr(args, name)}
    return {name: text for name, text in named.items() if text is not None} | switches


def _spelt(value: object) -> str:
    """As a file would say it."""
    if value is None:
        return "auto"
    return str(value) if not isinstance(value, bool) else "on" if value else "off"


def _print_config(settings: Config) -> int:
    for path in settings.files:
        print(f"{path}  {'read' if path.exists() else 'not there'}")
    print()
    for name in OPTIONS:
        print(f"{name:<14} {_spelt(settings[name]):<24} {settings.origin.get(name, 'default')}")
    for id, keys in settings.keymap.items():
        print(f"keymap {id:<18} {keys}")
    for problem in settings.problems:
        print(f"colibri tui: {problem}", file=sys.stderr)
    return 2 if settings.problems else 0


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    settings = config.load(_flags(args))
    if args.what == "config":
        return _print_config(settings)
    has_tty = all(stream is not None and stream.isatty() for stream in (sys.__stdin__, sys.__stdout__))
    if why := tier.refusal(os.environ, has_tty):
        print(f"colibri tui: {why}; use 'colibri status' for the same as plain text", file=sys.stderr)
        return REFUSED
    found = key_file.find(settings["key_file"])
    if found.fault:
        settings = replace(settings, problems=(*settings.problems, found.fault))
    if settings["refresh_s"] is None:
        settings = replace(settings, values={**settings.values, "refresh_s": pace.usual_rate(os.environ)})
    kind = tier.choose(tier.given(), ascii=settings["ascii"], mono=settings["mono"])
    tier.prepare(os.environ, kind)
    with contextlib.suppress(OSError):
        if os.nice(0) == 0:
            os.nice(NICE)
    try:
        return _run(settings, kind, found)
    except Exception as error:  # a start that failed: one line, the rest in a file
        from tui.faults import Fault

        fault = Fault(error, "start")
        print(f"colibri tui could not start: {fault.words}; details: {fault.file}", file=sys.stderr)
        return BROKEN_START


def _run(settings: Config, kind: tier.Tier, found: key_file.Found) -> int:
    from tui.app import ColibriApp
    from tui.client import Client
    from tui.watchdog import Watchdog

    client = Client(settings["url"], found.key, os.environ.get("COLIBRI_USER") or os.environ.get("USER", ""))
    app = ColibriApp(client, settings, looks=kind.looks, key_file=found.where)
    assert sys.__stdin__ is not None  # has_tty
    Watchdog(sys.__stdin__.fileno(), app.rescue, app.leave_at_once).start()
    code = app.run(mouse=settings["mouse"])
    return code if isinstance(code, int) else app.return_code or 0


if __name__ == "__main__":
    sys.exit(main())
