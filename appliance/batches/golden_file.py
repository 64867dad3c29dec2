"""Rows with known answers, asked before a batch: a canary for the quality of what comes after. Not here: the batch.

One JSON object a line: {"custom_id", "url", "body", "expected"}; `expected` is the answer's text, or an object of the
fields that must be in it (inner ones as inner objects, or by their path with dots). `colibri batch correct --golden`
writes it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.batches.rows import ENDPOINTS, BadInput
from appliance.batches.run import NotNow
from appliance.batches.verdict import flat, verdicts
from appliance.strict_json import InvalidJson, parse_object

MOST_ROWS = 1000
MOST_BYTES = 64 << 20
AT_ONCE = 8
Ask = Callable[[str, dict[str, Any]], Awaitable[tuple[int, dict[str, Any]]]]


@dataclass(frozen=True, slots=True)
class Known:
    """A row and what its answer must hold."""

    custom_id: str
    url: str
    body: dict[str, Any]
    expected: str | dict[str, Any]

    def is_right(self, body: dict[str, Any]) -> bool:
        """Whether an answer's body has what is expected."""
        said = {one.field: one.value for one in verdicts(body)}
        wanted = {"": self.expected.strip()} if isinstance(self.expected, str) else flat(self.expected)
        return all(name in said and said[name] == value for name, value in wanted.items())


class Golden:
    """`judge` sets `right` and `first_wrong`, the custom_id of the first row that came out otherwise."""

    def __init__(self, rows: list[Known]) -> None:
        self.rows, self.total = rows, len(rows)
        self.right: int | None = None
        self.first_wrong: str | None = None

    @classmethod
    def read(cls, path: Path) -> "Golden":
        """Raises BadInput (exit code 3) that names the line."""
        try:
            if path.stat().st_size > MOST_BYTES:
                raise _bad(f"{path.name} has more than {MOST_BYTES:,} bytes; 20 to 50 rows make a golden set")
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise _bad(f"the golden set {path} cannot be read ({error.strerror})") from None
        rows = [_known(line, number, path.name) for number, line in enumerate(lines, 1) if line.strip()]
        if not 0 < len(rows) <= MOST_ROWS:
            raise _bad(f"the golden set {path.name} has {len(rows):,} rows; 1 to {MOST_ROWS:,} are possible")
        return cls(rows)

    async def judge(self, ask: Ask) -> float:
        """The share of rows that come out as expected."""
        room = asyncio.Semaphore(AT_ONCE)
        found = await asyncio.gather(*(self._one(ask, row, room) for row in self.rows))
        self.right = sum(found)
        self.first_wrong = next((row.custom_id for row, good in zip(self.rows, found, strict=True) if not good), None)
        return self.right / self.total

    def summary(self) -> dict[str, Any]:
        """For --json."""
        return {"total": self.total, "right": self.right, "share": (self.right or 0) / self.total}

    async def _one(self, ask: Ask, row: Known, room: asyncio.Semaphore) -> bool:
        async with room:
            while True:
                try:
                    status, body = await ask(row.url, row.body)
                    return status < 400 and row.is_right(body)
                except NotNow as wait:
                    await asyncio.sleep(wait.after_s)


def line_of(known: Known) -> bytes:
    """A row as the file holds it."""
    record = {"custom_id": known.custom_id, "url": known.url, "body": known.body, "expected": known.expected}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _known(line: bytes, number: int, name: str) -> Known:
    try:
        value = parse_object(line, "line")
    except InvalidJson as error:
        raise _bad(f"line {number} of the golden set {name}: {error.message}") from None
    good = (
        isinstance(value.get("custom_id"), str)
        and value.get("url") in ENDPOINTS
        and isinstance(value.get("body"), dict)
        and isinstance(value.get("expected"), str | dict)
        and value["expected"]
    )
    if not good:
        raise _bad(f"line {number} of the golden set {name} needs custom_id, url, body and expected (a text, or an "
                   "object of the fields that the answer must hold)")  # fmt: skip
    return Known(value["custom_id"], value["url"], value["body"], value["expected"])


def _bad(message: str) -> BadInput:
    error = BadInput(message)
    error.exit_code = 3
    return error
