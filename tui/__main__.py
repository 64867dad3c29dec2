"""`python -m tui`: flags, the kind of terminal, then the program. Not here: the program (app.py)."""

import argparse
import os
import sys


def main() -> int:
    parser = argparse.ArgumentParser(prog="colibri tui")
    parser.add_argument("--url", default=os.environ.get("COLIBRI_URL", "http://127.0.0.1:8080"))
    parser.add_argument("--key-file")
    parser.add_argument("--readonly", "--view", action="store_true")
    args = parser.parse_args()
    from tui.app import ColibriApp
    from tui.client import Client

    return ColibriApp(Client(args.url, os.environ.get("COLIBRI_ADMIN_KEY", "")), is_readonly=args.readonly).run(mouse=False) or 0


if __name__ == "__main__":
    sys.exit(main())
