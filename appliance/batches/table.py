"""A table whose rows get a label each: read, made into rows of a batch, written again with the labels beside them.

    label | confidence | margin | runner_up | reviewed | error      after the table's own columns

The rows and the answers lie beside the result as JSON lines, so that a run that was cut goes on and the result can be
made anew at any time. Not here: how a row is answered, what a person corrects (review.py).
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.batches.results import replace
from appliance.batches.rows import MAX_ID, BadInput, Caps
from appliance.batches.verdict import verdicts
from engine.errors import UsageError

FIELD = "label"
ADDED = ("label", "confidence", "margin", "runner_up", "reviewed", "error")
LABELS = (2, 64)
"""Fewest and most; scoring takes no more."""
MAX_LABEL = 200
MAX_COLUMNS = 1000
CELL_BYTES = 4 << 20
EMPTY = "the text is empty"


@dataclass(frozen=True, slots=True)
class Table:
    """`rows` are as wide as `columns`; `delimiter` is what the file was written with."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    delimiter: str = ","

    @classmethod
    def read(cls, path: Path, caps: Caps | None = None) -> "Table":
        """Read a .csv or .tsv with a heading; raises BadInput (exit code 3) that names the line, OSError."""
        caps = caps or Caps()
        if path.stat().st_size > caps.bytes:
            raise _bad(f"{path.name} has more than {caps.bytes:,} bytes; split it", "file_too_large")
        raw = path.read_bytes()
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = raw[: error.start].count(b"\n") + 1
            raise _bad(f"line {line} of {path.name} is not UTF-8 text; save the table as UTF-8") from None
        first = text.split("\n", 1)[0]
        delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=first.count)
        csv.field_size_limit(CELL_BYTES)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        rows: list[tuple[str, ...]] = []
        try:
            columns = tuple(name.strip() for name in next(reader, ()))
            _check_columns(columns, path.name)
            for row in reader:
                if not row:
                    continue
                if len(row) != len(columns):
                    raise _bad(f"line {reader.line_num} of {path.name} has {len(row)} cells and the heading "
                               f"{len(columns)}; mend the line, or quote cells that hold {delimiter!r}")  # fmt: skip
                if len(rows) == caps.lines:
                    raise _bad(f"{path.name} has more than {caps.lines:,} rows; split it", "too_many_rows")
                rows.append(tuple(row))
        except csv.Error as error:
            raise _bad(f"line {reader.line_num} of {path.name} is no line of a table ({error})") from None
        if not rows:
            raise _bad(f"{path.name} has a heading and no rows", "empty_file")
        return cls(columns, tuple(rows), delimiter)

    def column(self, name: str) -> int:
        """Its place; raises UsageError that names the columns there are."""
        if name not in self.columns:
            raise UsageError(f"the table has no column '{name}'; it has {', '.join(self.columns)[:300]}")
        return self.columns.index(name)


def labels_of(given: str) -> tuple[str, ...]:
    """From `a,b,c` or `@FILE` with one a line; raises UsageError."""
    parts: list[str]
    if given.startswith("@"):
        try:
            parts = Path(given[1:]).read_text("utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError):
            raise UsageError(f"the file of labels {given[1:]} cannot be read as UTF-8 text") from None
    else:
        parts = given.split(",")
    labels = tuple(filter(None, (part.strip() for part in parts)))
    if twice := next((label for i, label in enumerate(labels) if label in labels[:i]), None):
        raise UsageError(f"the label '{twice}' stands twice")
    if not LABELS[0] <= len(labels) <= LABELS[1]:
        raise UsageError(f"{len(labels)} labels are given; {LABELS[0]} to {LABELS[1]} are possible")
    if long := next((label for label in labels if len(label) > MAX_LABEL), None):
        raise UsageError(f"the label '{long[:30]}...' has {len(long)} characters; at most {MAX_LABEL} are taken")
    return labels


@dataclass(frozen=True, slots=True)
class Tagging:
    """A table and what is asked of each row."""

    table: Table
    text_column: str
    id_column: str | None
    labels: tuple[str, ...]
    instruction: str

    @staticmethod
    def beside(output: Path) -> tuple[Path, Path, Path]:
        """Where the rows, the answers and the errors of a result lie."""
        return tuple(output.with_name(f"{output.name}.{what}.jsonl") for what in ("rows", "answers", "errors"))  # type: ignore[return-value]

    def ids(self) -> list[str]:
        """The name of each row; raises BadInput for one that is empty or stands twice."""
        return _ids(self.table, self.id_column)

    def write_rows(self, path: Path) -> None:
        """The table as rows of a batch, the same bytes each time. Rows without text are left out."""
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in self._requests()]
        if not lines:
            raise _bad(f"no row has a text in the column '{self.text_column}'", "empty_file")
        data = "".join(lines).encode("utf-8", "replace")
        if not (path.exists() and path.read_bytes() == data):
            replace(path, data)

    def finish(self, output: Path, answers: Path, errors: Path) -> None:
        """Write the table with its labels, from what has been answered so far and what a person corrected."""
        found = {record["custom_id"]: record for record in _records(answers)}
        failed = {record["custom_id"]: record for record in _records(errors)}
        corrected = {record["custom_id"]: record[FIELD] for record in _records(corrections(output))}
        taken = set(self.table.columns)
        names = tuple(name if name not in taken else f"colibri_{name}" for name in ADDED)
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter=self.table.delimiter, lineterminator="\n")
        writer.writerow((*self.table.columns, *names))
        at = self.table.column(self.text_column)
        for name, row in zip(self.ids(), self.table.rows, strict=True):
            writer.writerow((*row, *self._cells(found.get(name), failed.get(name), corrected.get(name), row[at])))
        replace(output, out.getvalue().encode("utf-8", "replace"))
        replace(_task(output), json.dumps({"id_column": self.id_column, "columns": len(self.table.columns)}).encode())

    def _requests(self) -> Iterator[dict[str, Any]]:
        at = self.table.column(self.text_column)
        schema = {"type": "object", "properties": {FIELD: {"type": "string", "enum": list(self.labels)}},
                  "required": [FIELD], "additionalProperties": False}  # fmt: skip
        form = {"type": "json_schema", "json_schema": {"name": FIELD, "strict": True, "schema": schema}}
        for name, row in zip(self.ids(), self.table.rows, strict=True):
            if row[at].strip():
                said = [{"role": "system", "content": self.instruction}, {"role": "user", "content": row[at]}]
                body = {"messages": said, "temperature": 0, "response_format": form}
                yield {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}

    def _cells(self, record: Any, failed: Any, corrected: Any, text: str) -> tuple[object, ...]:
        if record is None:
            error = EMPTY if not text.strip() else failed["error"]["message"] if failed else "not answered yet"
            return (corrected or "", "", "", "", "yes" if corrected else "", error)
        said = next(iter(verdicts(record["response"]["body"])), None)
        if said is None or said.field != FIELD or said.value not in self.labels:
            error = "the answer was cut short" if said is not None and said.is_cut else "the answer is no label"
            return (corrected or "", "", "", "", "yes" if corrected else "", error)
        return (corrected or said.value, _shown(said.confidence), _shown(said.margin), said.runner_up or "",
                "yes" if corrected else "", "")  # fmt: skip


def relabel(output: Path, labels: Mapping[str, str]) -> None:
    """Put corrected labels, by the rows' names, into a tagged table as it is."""
    task = json.loads(_task(output).read_bytes())
    table, first = Table.read(output), int(task["columns"])
    at, mark = first + ADDED.index("label"), first + ADDED.index("reviewed")
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=table.delimiter, lineterminator="\n")
    writer.writerow(table.columns)
    for name, row in zip(_ids(table, task["id_column"]), table.rows, strict=True):
        cells = list(row)
        if name in labels:
            cells[at], cells[mark] = labels[name], "yes"
        writer.writerow(cells)
    replace(output, out.getvalue().encode())


def _ids(table: Table, id_column: str | None) -> list[str]:
    if id_column is None:
        return [f"row-{number}" for number in range(1, len(table.rows) + 1)]
    at = table.column(id_column)
    ids, seen = [row[at] for row in table.rows], set[str]()
    for number, name in enumerate(ids, 1):
        if not name or name in seen or len(name) > MAX_ID:
            what = "stands twice" if name in seen else "is empty" if not name else "is too long"
            raise _bad(f"row {number}: its name in the column '{id_column}' {what}; names must be unique")
        seen.add(name)
    return ids


def _task(output: Path) -> Path:
    """Where it is kept how a result's rows are named."""
    return output.with_name(f"{output.name}.task.json")


def corrections(output: Path) -> Path:
    """Where what a person corrected is kept, so that a result made anew keeps it."""
    return output.with_name(f"{output.name}.corrections.jsonl")


def _records(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                yield json.loads(line)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def _check_columns(columns: tuple[str, ...], name: str) -> None:
    if not any(columns):
        raise _bad(f"{name} has no heading; its first line must name the columns", "empty_file")
    if len(columns) > MAX_COLUMNS:
        raise _bad(f"{name} has {len(columns):,} columns; at most {MAX_COLUMNS:,} are taken")
    if twice := next((column for i, column in enumerate(columns) if column in columns[:i]), None):
        raise _bad(f"the column '{twice}' of {name} stands twice")


def _bad(message: str, code: str = "invalid_file") -> BadInput:
    error = BadInput(message, code)
    error.exit_code = 3
    return error
