"""Strict JSON from strangers, a body or a line of a file: one object, bounded. Not here: reading it, its fields."""

import json
import math
import re
from itertools import islice
from typing import Any, NoReturn

from engine.errors import RequestError

MAX_DEPTH = 64
MAX_DIGITS = 400
MAX_PARTS = 400_000
"""Strings, commas and opening brackets of a body: 8 prompts of 32k ids have 262k. Without it and the first-fault rule
of schema.py 8 MB of `1,` held the event loop for 19 s and took 4.9 GB; now the worst body takes about a second."""
PART = re.compile(rb'[,\[{]|"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


class InvalidJson(RequestError):
    code = "invalid_json"


class _Fault(Exception):
    """What is wrong, as the rest of a sentence that begins with what was read."""


def parse_object(raw: bytes, what: str = "body") -> dict[str, Any]:
    """Strict JSON: UTF-8, one object, no key twice, no NaN or infinity, no more than MAX_DEPTH levels
    and MAX_PARTS parts.

    Raises InvalidJson with a sentence about `what` that holds nothing of it.
    """
    try:
        return _parse(raw)
    except _Fault as fault:
        raise InvalidJson(f"the {what} {fault}") from None


def _parse(raw: bytes) -> dict[str, Any]:
    if not raw.strip():
        raise _Fault("is empty; a JSON object was expected")
    _count(raw)
    try:
        value = json.loads(
            raw.decode("utf-8-sig"),
            object_pairs_hook=_pairs,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except UnicodeDecodeError as error:
        raise _Fault(f"is not UTF-8: byte {error.start} does not belong to a character") from None
    except json.JSONDecodeError as error:
        raise _Fault(f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _Fault(f"is nested deeper than the {MAX_DEPTH} levels this server reads") from None
    if not isinstance(value, dict):
        raise _Fault(f"is a JSON {json_name(value)}; an object was expected")
    _check(value)
    return value


def json_name(value: object) -> str:
    """What JSON calls the value's type."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    names: list[tuple[type | tuple[type, ...], str]] = [
        ((int, float), "number"), (str, "string"), ((list, tuple), "array"), (dict, "object")
    ]  # fmt: skip
    return next((name for kind, name in names if isinstance(value, kind)), "value")


def _count(raw: bytes) -> None:
    """Refuse before parsing what would become too many objects; text, however long, is one part."""
    if sum(map(raw.count, (b",", b"[", b"{", b'"'))) <= MAX_PARTS:
        return
    if sum(1 for _ in islice(PART.finditer(raw), MAX_PARTS + 1)) > MAX_PARTS:
        raise _Fault(
            f"has more than the {MAX_PARTS} strings, commas and brackets this server reads; send less at once"
        )


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Fault(f"has a key twice ({_short(twice)}); each key may stand once")
    return found


def _constant(word: str) -> NoReturn:
    raise _Fault(f"holds {word}, which is not JSON; numbers are finite")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _Fault("holds a number too large for a double; numbers are finite")
    return value


def _int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _Fault(f"holds a number of {len(digits)} digits; {MAX_DIGITS} are read")
    return int(digits)


def _check(value: dict[str, Any]) -> None:
    """Depth and characters, level by level so that no depth can exhaust the stack."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
                _characters(item.keys())
            else:
                below += item
        _characters(s for s in below if isinstance(s, str))
        level = [item for item in below if isinstance(item, dict | list)]
        if not level:
            return
    raise _Fault(f"is nested deeper than the {MAX_DEPTH} levels this server reads")


def _characters(strings: Any) -> None:
    for text in strings:
        if not text.isascii():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                raise _Fault(
                    "holds half of a surrogate pair (a \\ud8xx without its \\udcxx); send whole characters"
                ) from None


def _short(text: str) -> str:
    return repr(text[:40]) if text.isascii() else "not ASCII"
