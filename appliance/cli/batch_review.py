"""`colibri batch review` and `correct`: a person's part in a batch. Not here: the table's form (batches/review.py).

review --json: {"review", "lines"}        correct --json: {"corrected", "confirmed", "output", "golden", "golden_rows"}
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from appliance.batches import review as reviews
from appliance.batches.golden_file import Known, line_of
from appliance.batches.results import dumps, replace
from appliance.batches.rows import BadInput, Row, read_row, scan
from appliance.batches.table import FIELD, Tagging, corrections, relabel
from appliance.batches.verdict import verdicts
from appliance.cli.batch_work import unreadable
from engine.errors import UsageError


def review(args: argparse.Namespace) -> int:
    rows, answers, _ = _found(args)
    n = reviews.write(args.review, rows, answers.values(), args.below)
    if args.json:
        print(json.dumps({"review": str(args.review), "lines": n}))
    sys.stderr.write(f"{n:,} answers are in {args.review}, the least certain first; fill in the column 'corrected'\n")
    return 0


def correct(args: argparse.Namespace) -> int:
    rows, answers, is_table = _found(args)
    looked = reviews.read(args.review, rows, answers)
    said: dict[str, dict[str, Any]] = defaultdict(dict)
    for one in looked:
        said[one.custom_id][one.field] = one.value
    before = {name: {one.field: one.value for one in verdicts(answers[name]["response"]["body"])} for name in said}
    changed = sum(before[one.custom_id][one.field] != one.value for one in looked)
    target = corrections(args.output) if is_table else args.output.with_name(f"{args.output.name}.corrected.jsonl")
    if is_table:
        known = {record["custom_id"]: record for record in _lines(target)}
        known |= {name: {"custom_id": name, **fields} for name, fields in said.items()}
        replace(target, b"".join(map(dumps, known.values())))
        relabel(args.output, {name: str(record[FIELD]) for name, record in known.items()})
    else:
        made = (reviews.applied(record, said[name]) if name in said else record for name, record in answers.items())
        replace(target, b"".join(map(dumps, made)))
    n_golden = 0
    if args.golden:
        whole = {name: fields for name, fields in said.items() if fields.keys() == before[name].keys()}
        n_golden = len(whole)
        replace(args.golden, b"".join(line_of(_golden(rows[name], fields)) for name, fields in whole.items()))
    output = str(args.output if is_table else target)
    told = {"corrected": changed, "confirmed": len(looked) - changed, "output": output,
            "golden": str(args.golden) if args.golden else None, "golden_rows": n_golden}  # fmt: skip
    if args.json:
        print(json.dumps(told))
    more = f"; {n_golden:,} golden rows in {args.golden}" if args.golden else ""
    sys.stderr.write(f"{changed:,} corrected, {len(looked) - changed:,} confirmed in {output}{more}\n")
    return 0


def _golden(row: Row, fields: dict[str, Any]) -> Known:
    return Known(row.custom_id, row.url, row.body, fields.get("", fields))


def _found(args: argparse.Namespace) -> tuple[dict[str, Row], dict[str, dict[str, Any]], bool]:
    """The rows and the answers by custom_id, and whether they are a table's."""
    rows, answers, _ = Tagging.beside(args.output)
    is_table = args.input is None and rows.exists()
    source = rows if is_table else args.input
    if source is None:
        raise UsageError(f"{args.output} is no tagged table; give its input with -i")
    try:
        found = scan(source)
        with source.open("rb") as file:
            by_id = {ref.custom_id: read_row(file.fileno(), ref) for ref in found.refs}
        records = {record["custom_id"]: record for record in _lines(answers if is_table else args.output)}
    except OSError as error:
        raise unreadable(source, error) from None
    except BadInput as error:
        error.exit_code = 3
        raise
    if strange := records.keys() - by_id.keys():
        text = f"{args.output.name} answers {len(strange):,} rows that {source.name} does not have; give its input"
        raise UsageError(text)
    return by_id, records, is_table


def _lines(path: Path) -> list[dict[str, Any]]:
    """The records of a file of ours, none if it is not there; a last line torn by a crash is left out."""
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        try:
            record = json.loads(line)
            record["custom_id"] + ""
        except (ValueError, LookupError, TypeError):
            if not line.endswith(b"\n"):
                break
            error = BadInput(f"line {number} of {path.name} is no record of a batch")
            error.exit_code = 3
            raise error from None
        found.append(record)
    return found
