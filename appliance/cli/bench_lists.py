"""Which tests and which engines a `colibri bench` line asks for. Not here: measuring.

Every number list takes llama-bench's forms: 512  |  1,2,4  |  1-4  |  2-8+2  |  1-8*2, and the option may repeat.
"""

import argparse
import itertools
import re
from typing import Any, NamedTuple

from engine.errors import UsageError

MOST_TESTS = 10_000
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?:([+*])(\d{1,9}))?)?")


class Test(NamedTuple):
    """Read `n_prompt` tokens and write `n_gen`, after `n_depth` tokens that are not counted."""

    n_prompt: int
    n_gen: int
    n_depth: int


def tests_of(args: argparse.Namespace) -> list[Test]:
    """Every prompt length and answer length at every depth, then the pairs of -pg."""
    depths = numbers("--n-depth", args.n_depth or ["0"])
    tests = [Test(p, 0, d) for p in numbers("--prompt-tokens", args.prompt_tokens or ["512"]) if p for d in depths]
    tests += [Test(0, n, d) for n in numbers("--gen-tokens", args.gen_tokens or ["128"]) if n for d in depths]
    for pair in args.pg:
        found = re.fullmatch(r"(\d{1,9}),(\d{1,9})", pair)
        if not found:
            raise UsageError(f"-pg {pair}: two numbers with a comma are expected, such as 512,128")
        tests += [Test(int(found[1]), int(found[2]), d) for d in depths if int(found[1]) or int(found[2])]
    return tests


def engines_of(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Each combination of the engine lists, as flags; what was not given is left to the settings."""
    lists = {}
    for name, given in vars(args).items():
        if name.startswith("list_") and given:
            key = name.removeprefix("list_")
            is_word = key.startswith("cache") or key == "load_mode"
            flat = [w.strip() for text in given for w in str(text).split(",")]
            lists[key] = list(dict.fromkeys(flat if is_word else numbers(f"--{key.replace('_', '-')}", given)))
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def numbers(option: str, given: list[str]) -> list[int]:
    """llama-bench's lists and ranges as numbers, in order; UsageError names the option and the odd part."""
    found: list[int] = []
    for part in ",".join(given).split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise UsageError(f"{option} {part!r}: a number or a range such as 1-8, 2-8+2 or 1-8*2 is expected")
        first, last = int(match[1]), int(match[2] or match[1])
        step = int(match[4] or 1)
        if last < first or (match[3] and (step < 1 or (match[3] == "*" and (step < 2 or first < 1)))):
            raise UsageError(f"{option} {part!r}: a range must rise from its first number to its last")
        while first <= last:
            found.append(first)
            first = first * step if match[3] == "*" else first + step
            if len(found) > MOST_TESTS:
                raise UsageError(f"{option} names over {MOST_TESTS} values; shorten the list")
    return list(dict.fromkeys(found))
