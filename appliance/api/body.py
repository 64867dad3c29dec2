"""Request bodies: read under a cap and a time limit, parsed strictly. Not here: which fields a route knows."""

import asyncio
import json
import math
import re
from itertools import islice
from typing import Any, NoReturn

from aiohttp import web

from appliance.api.errors import InvalidJson, TooLarge, TooSlow

MAX_DEPTH = 64
MAX_DIGITS = 400
MAX_PARTS = 400_000
"""Strings, commas and opening brackets of a body: 8 prompts of 32k ids have 262k. Without it and the first-fault rule
of schema.py 8 MB of `1,` held the event loop for 19 s and took 4.9 GB; now the worst body takes about a second."""
PART = re.compile(rb'[,\[{]|"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
READ_TIMEOUT_S = 60.0
"""Longest pause between two pieces of a body."""


def body_cap(n_ctx: int) -> int:
    """Most bytes of a body: enough for a full context of long words written as JSON escapes, and never below 8 MiB."""
    return max(8 * 1024 * 1024, 64 * n_ctx)


async def read_body(request: web.Request, cap: int) -> bytes:
    """All bytes of the body, decompressed; raises TooLarge before reading more than `cap`."""
    refusal = TooLarge(f"the body is larger than the {cap} bytes this server takes; send a shorter prompt")
    if (request.content_length or 0) > cap:
        raise refusal
    pieces: list[bytes] = []
    size = 0
    while True:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                piece = await request.content.readany()
        except TimeoutError:
            raise TooSlow(f"no byte of the body came for {READ_TIMEOUT_S:.0f} s; send it again in one go") from None
        except web.RequestPayloadError:
            raise InvalidJson("the body does not match its Content-Encoding or Transfer-Encoding") from None
        if not piece:
            return b"".join(pieces)
        size += len(piece)
        if size > cap:
            raise refusal
        pieces.append(piece)


async def read_object(request: web.Request, cap: int) -> tuple[dict[str, Any], bytes]:
    """The body as a JSON object, and its bytes."""
    raw = await read_body(request, cap)
    return parse_object(raw), raw


def parse_object(raw: bytes) -> dict[str, Any]:
    """Strict JSON: UTF-8, one object, no key twice, no NaN or infinity, no more than MAX_DEPTH levels
    and MAX_PARTS parts.

    Raises InvalidJson with a sentence that holds nothing of the body.
    """
    if not raw.strip():
        raise InvalidJson("the body is empty; a JSON object was expected")
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
        raise InvalidJson(f"the body is not UTF-8: byte {error.start} does not belong to a character") from None
    except json.JSONDecodeError as error:
        raise InvalidJson(f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise InvalidJson(f"the body is nested deeper than the {MAX_DEPTH} levels this server reads") from None
    if not isinstance(value, dict):
        raise InvalidJson(f"the body is a JSON {json_name(value)}; an object was expected")
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
        raise InvalidJson(
            f"the body has more than the {MAX_PARTS} strings, commas and brackets this server reads; send less at once"
        )


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InvalidJson(f"the body has a key twice ({_short(twice)}); each key may stand once")
    return found


def _constant(word: str) -> NoReturn:
    raise InvalidJson(f"the body holds {word}, which is not JSON; numbers are finite")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise InvalidJson("the body holds a number too large for a double; numbers are finite")
    return value


def _int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise InvalidJson(f"the body holds a number of {len(digits)} digits; {MAX_DIGITS} are read")
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
    raise InvalidJson(f"the body is nested deeper than the {MAX_DEPTH} levels this server reads")


def _characters(strings: Any) -> None:
    for text in strings:
        if not text.isascii():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                raise InvalidJson(
                    "the body holds half of a surrogate pair (a \\ud8xx without its \\udcxx); send whole characters"
                ) from None


def _short(text: str) -> str:
    return repr(text[:40]) if text.isascii() else "not ASCII"
