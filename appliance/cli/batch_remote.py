"""`colibri batch add`, `list`, `show`, `cancel`: files given to others to answer. Not here: answering (batch_run.py).

`--json` prints the service's own objects (OpenAI's batch), and for `add --spool` {"spooled": path}.
"""

import argparse
import json
import time
from typing import Any

from appliance.batches.golden_file import Golden
from appliance.batches.rows import BadInput, Scan, scan
from appliance.batches.spool import Spool
from appliance.batches.window import Window
from appliance.cli.batch_work import unreadable
from appliance.cli.columns import columns, safe
from appliance.cli.remote import remote
from engine.errors import UsageError

MOST_LISTED = 100


def add(args: argparse.Namespace) -> int:
    if args.window:
        Window.parse(args.window)
    found = _looked(args)
    if args.spool:
        if given := next((name for name in ("window", "profile", "golden") if getattr(args, name)), None):
            raise UsageError(f"--{given} is given to 'colibri batch run --spool', which works the folder off")
        target = Spool(args.spool).add(args.input)
        print(json.dumps({"spooled": str(target)}) if args.json else f"{target}  {len(found.refs):,} rows")
        return 0
    with args.input.open("rb") as file:
        line = json.loads(file.readline())
    service = remote(args)
    uploaded = service.upload("/v1/files", args.input, {"purpose": "batch"})
    order: dict[str, Any] = {"input_file_id": uploaded["id"], "endpoint": line["url"], "completion_window": "24h"}
    metadata = {"colibri_window": args.window, "colibri_profile": args.profile}
    if args.golden:
        Golden.read(args.golden)
        metadata["colibri_golden"] = service.upload("/v1/files", args.golden, {"purpose": "batch"})["id"]
        metadata["colibri_golden_share"] = str(args.golden_min)
    if any(metadata.values()):
        order["metadata"] = {name: value for name, value in metadata.items() if value is not None}
    made = service.call("POST", "/v1/batches", order)
    print(json.dumps(made) if args.json else _line(made))
    return 0


def show_all(args: argparse.Namespace) -> int:
    if not 1 <= args.limit <= MOST_LISTED:
        raise UsageError(f"--limit {args.limit}: 1 to {MOST_LISTED} is possible")
    found = remote(args).call("GET", f"/v1/batches?limit={args.limit}")
    if args.json:
        print(json.dumps(found))
        return 0
    rows = [("ID", "STATUS", "ROWS", "FAILED", "CREATED", "ENDPOINT", "NOW"), *map(_cells, found["data"])]
    print(columns(rows, right=(2, 3)) if len(rows) > 1 else "there are no batches")
    return 0


def show(args: argparse.Namespace) -> int:
    found = remote(args).call("GET", f"/v1/batches/{_id(args.id)}")
    if args.json:
        print(json.dumps(found))
        return 0
    for name, value in found.items():
        if value is not None and name not in ("object", "errors"):
            shown = value if isinstance(value, str) else json.dumps(value)
            print(f"{name:18} {_when(value) if name.endswith('_at') else safe(str(shown), 200)}")
    for error in ((found.get("errors") or {}).get("data") or [])[:20]:
        print(f"line {error.get('line')}: {safe(str(error.get('message')), 200)}")
    return 0


def cancel(args: argparse.Namespace) -> int:
    found = remote(args).call("POST", f"/v1/batches/{_id(args.id)}/cancel")
    print(json.dumps(found) if args.json else _line(found))
    return 0


def _looked(args: argparse.Namespace) -> Scan:
    """A file that is no batch is told here, with its lines, before anybody waits a night for it."""
    try:
        found = scan(args.input)
    except OSError as error:
        raise unreadable(args.input, error) from None
    except BadInput as error:
        error.exit_code = 3
        raise
    if found.problems:
        first = found.problems[0]
        text = f"{len(found.problems):,} lines of {args.input.name} are no rows; line {first.line}: {first.message}"
        wrong = BadInput(text)
        wrong.exit_code = 3
        raise wrong
    return found


def _id(given: str) -> str:
    if not (given.replace("_", "").replace("-", "").isalnum() and given.isascii()):
        raise UsageError(f"'{given[:60]}' is no batch's id; colibri batch list shows them")
    return given


def _cells(batch: dict[str, Any]) -> tuple[str, ...]:
    counts = batch.get("request_counts") or {}
    done = int(counts.get("completed") or 0) + int(counts.get("failed") or 0)
    rows = f"{done:,}/{int(counts.get('total') or 0):,}"
    failed = str(counts.get("failed") or 0)
    words = (str(batch.get("id")), str(batch.get("status")))
    ours = batch.get("colibri") or {}
    now = f"waits {ours['waits']}" if ours.get("waits") else str(ours.get("finish") or "")
    endpoint = safe(str(batch.get("endpoint")))
    return (*map(safe, words), rows, failed, _when(batch.get("created_at")), endpoint, safe(now))


def _line(batch: dict[str, Any]) -> str:
    name, status, rows, failed, *_ = _cells(batch)
    return f"{name}  {status}  {rows} rows, {failed} failed"


def _when(seconds: Any) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if isinstance(seconds, int) else ""
