"""An argument parser that answers in one line and knows the nearest option. Not here: any option."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from appliance.names import hint


class Parser(argparse.ArgumentParser):
    """No abbreviations (a script's `--thr` would break with the next option); an error is one line and exit code 2."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", _Wide)
        super().__init__(*args, **kwargs)

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            first = unknown[0].split("=")[0]
            known = [name for parser in self._all() for action in parser._actions for name in action.option_strings]
            what = "option" if first.startswith("-") else "argument"
            self.error(f"there is no {what} '{first}'{hint(first, known)}")
        return parsed

    def _all(self) -> Iterator[argparse.ArgumentParser]:
        yield self
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from action.choices.values()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            what = "/".join(action.option_strings) or str(action.metavar or action.dest).lower()
            self.error(f"there is no {what} '{value}' among {', '.join(names)}{hint(str(value), names)}")

    def error(self, message: str) -> NoReturn:
        print(f"colibri: error: {message} ({self.prog} --help lists the options)", file=sys.stderr)
        raise SystemExit(2)


class _Wide(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34)
