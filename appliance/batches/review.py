"""The least certain answers first, for a person to correct in a spreadsheet; and what the person said, read again.

    custom_id | field | value | confidence | runner_up | reason | text | corrected

An empty `corrected` means that nobody has looked; the same value confirms, another one corrects. Not here: where
answers come from, what becomes of corrections.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.batches.results import replace
from appliance.batches.rows import BadInput, Row
from appliance.batches.table import CELL_BYTES
from appliance.batches.verdict import Verdict, put, verdicts

COLUMNS = ("custom_id", "field", "value", "confidence", "runner_up", "reason", "text", "corrected")
CLOSE = 0.1
"""A margin under this is worth a word."""
MOST_TEXT = 2000
"""Characters of a row's text that are shown."""
MOST_BYTES = 200 << 20


@dataclass(frozen=True, slots=True)
class Corrected:
    """One line that somebody has looked at; `value` is of the kind that the answer had."""

    custom_id: str
    field: str
    value: Any


def write(path: Path, rows: Mapping[str, Row], records: Iterable[dict[str, Any]], below: float = 1.0) -> int:
    """Write the answers whose confidence is under `below` (1 takes all) or not known; the number of lines."""
    found: list[tuple[float, int, tuple[str, ...]]] = []
    for record in records:
        row = rows.get(record["custom_id"])
        for said in verdicts((record["response"] or {}).get("body") or {}) if row is not None else ():
            sure = said.confidence
            if row is not None and (sure is None or sure < below or below >= 1.0):
                found.append((-1.0 if sure is None else sure, row.line, _line(row, said)))
    found.sort(key=lambda one: one[:2])
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(line for _, _, line in found)
    replace(path, out.getvalue().encode("utf-8", "replace"))
    return len(found)


def read(path: Path, rows: Mapping[str, Row], answers: Mapping[str, dict[str, Any]]) -> list[Corrected]:
    """The lines that somebody has looked at; raises BadInput (exit code 3) that names the line of a wrong one."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise _bad(f"{path.name} has more than {MOST_BYTES:,} bytes; it is no review of ours")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise _bad(f"{path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise _bad(f"{path.name} is not UTF-8 text; save the table as UTF-8") from None
    first = text.split("\n", 1)[0]
    csv.field_size_limit(CELL_BYTES)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count))
    if missing := [name for name in ("custom_id", "field", "corrected") if name not in (reader.fieldnames or ())]:
        raise _bad(f"{path.name} has no column '{missing[0]}'; it is no review that 'colibri batch review' wrote")
    found: dict[tuple[str, str], Corrected] = {}
    try:
        for line in reader:
            said = (line["corrected"] or "").strip()
            if said:
                one = _corrected(line["custom_id"] or "", line["field"] or "", said, rows, answers, reader.line_num)
                found[one.custom_id, one.field] = one
    except csv.Error as error:
        raise _bad(f"line {reader.line_num} of {path.name} is no line of a table ({error})") from None
    return list(found.values())


def applied(record: dict[str, Any], corrected: Mapping[str, Any]) -> dict[str, Any]:
    """An answer's record with the corrected values in its text."""
    made: dict[str, Any] = json.loads(json.dumps(record))
    body = made["response"]["body"]
    choice = body["choices"][0]
    if "" in corrected:
        text = str(corrected[""])
    else:
        said = json.loads(choice["message"]["content"] if "message" in choice else choice["text"])
        for field, value in corrected.items():
            put(said, field, value)
        text = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
    if "message" in choice:
        choice["message"]["content"] = text
    else:
        choice["text"] = text
    body["colibri"] = {**(body.get("colibri") or {}), "corrected": sorted(corrected)}
    return made


def _line(row: Row, said: Verdict) -> tuple[str, ...]:
    if said.is_cut:
        reason = "cut short"
    elif said.confidence is None:
        reason = "confidence not known"
    elif said.margin is not None and said.margin < CLOSE:
        reason = "the runner-up is close"
    else:
        reason = ""
    sure = "" if said.confidence is None else f"{said.confidence:.6f}"
    rival = "" if said.runner_up is None else _text(said.runner_up)
    return (row.custom_id, said.field, _text(said.value), sure, rival, reason, _own(row.body), "")


def _own(body: dict[str, Any]) -> str:
    """The row's own text: its last message, prompt or context."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    own = last.get("content") if isinstance(last, dict) else body.get("prompt", body.get("context", ""))
    return (own if isinstance(own, str) else json.dumps(own, ensure_ascii=False))[:MOST_TEXT]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _corrected(
    name: str, field: str, said: str, rows: Mapping[str, Row], answers: Mapping[str, dict[str, Any]], number: int
) -> Corrected:
    row, record = rows.get(name), answers.get(name)
    if row is None or record is None:
        raise _bad(f"line {number}: no answered row is named '{name[:80]}'; is it a review of this output?")
    before = {one.field: one.value for one in verdicts(record["response"]["body"])}
    if field not in before:
        known = ", ".join(map(repr, before)) or "none"
        raise _bad(f"line {number}: the answer of '{name[:80]}' has no field '{field[:80]}'; it has {known}")
    options = list(_options(row.body, field))
    for value in options:
        if _text(value) == said:
            return Corrected(name, field, value)
    if options:
        shown = ", ".join(_text(value) for value in options)[:300]
        raise _bad(f"line {number}: '{said[:80]}' is none of the values of '{field}': {shown}")
    if isinstance(before[field], str):
        return Corrected(name, field, said)
    try:
        value = json.loads(said)
    except (ValueError, RecursionError):
        kind = type(before[field]).__name__
        raise _bad(f"line {number}: '{said[:80]}' is no JSON value, and '{field}' was a {kind}") from None
    return Corrected(name, field, value)


def _options(body: dict[str, Any], field: str) -> Iterator[Any]:
    """The values that the row's schema allows for a field, if it lists them."""
    try:
        schema = body["response_format"]["json_schema"]["schema"]
    except (LookupError, TypeError):
        return
    found = _leaf(schema, field)
    values = found.get("enum", (True, False) if found.get("type") == "boolean" else ())
    yield from values if isinstance(values, list | tuple) else ()


def _leaf(schema: Any, field: str) -> dict[str, Any]:
    """The schema of a field by its path with dots; empty where it is not told plainly."""
    inner = schema.get("properties") if isinstance(schema, dict) else None
    for name, one in inner.items() if isinstance(inner, dict) else ():
        if name == field:
            return one if isinstance(one, dict) else {}
        if field.startswith(f"{name}.") and (found := _leaf(one, field[len(name) + 1 :])):
            return found
    return {}


def _bad(message: str) -> BadInput:
    error = BadInput(message)
    error.exit_code = 3
    return error
