"""`colibri tui`: puts the terminal program in this process's place. Not here: the program (tui/), what it shows.

The program talks HTTP and nothing else, so it shares no module with this package; `exec` keeps the process id, hence
the terminal's signals reach it as if the shell had started it.
"""

import argparse
import os
import subprocess
import sys
from importlib.util import find_spec

from engine.errors import ColibriError

NAME = "tui"
HELP = "the terminal program: watch the service, edit and change profiles"
NEEDS = ("textual", "aiohttp")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Open the terminal program: what serves, how fast, who waits; list, edit and check\n"
        "profiles; change the profile in force and watch it happen. Needs a real terminal\n"
        "of 80x24 or more; over SSH use ssh -t. It changes nothing without asking."
    )
    parser.epilog = (
        "inside:\n  1 dashboard   2 profiles   7 logs   s change the profile   ? all keys   q quit\n\n"
        "examples:\n  colibri tui\n  colibri tui --url http://127.0.0.1:9000\n"
        "  NO_COLOR=1 colibri tui --ascii      # no colour, only ASCII signs\n"
        "  ssh -t box scripts/colibri-tui      # the one in the container, from another machine\n\n"
        "No terminal, or TERM=dumb: colibri status tells the same as plain text. After a kill -9\n"
        "the shell may need: reset"
    )
    # No sign begins an option here: every word goes to the program as it is, which knows its options and their errors.
    parser.prefix_chars = "\0"
    parser.add_argument("words", nargs="*", metavar="OPTION", help="options of the program, listed below")
    parser.set_defaults(help=parser.format_help)


def run(args: argparse.Namespace) -> int:
    missing = [name for name in NEEDS if find_spec(name) is None]
    if missing or find_spec("tui") is None:
        what = ", ".join(missing) or "its own package"
        raise ColibriError(f"the terminal program cannot start: {what} is not installed beside {sys.executable}; "
                           "install colibri-runtime there, or use 'colibri status'")  # fmt: skip
    argv = [sys.executable, "-m", "tui", *args.words]
    if not {"-h", "--help"} & set(args.words):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.execv(sys.executable, argv)
    print(args.help(), flush=True)
    return subprocess.run(argv, check=False).returncode
