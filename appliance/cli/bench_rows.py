"""What `colibri bench` prints: llama-bench's field names as JSON, JSON lines, CSV or a table. Not here: measuring."""

import csv
import io
import json
import statistics
from typing import Any

from appliance.cli.bench_ops import ops_table

FORMATS = ("md", "json", "jsonl", "csv")


def spread(values: list[float]) -> tuple[float, float]:
    """Mean and sample standard deviation; one value deviates by 0."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def with_samples(row: dict[str, Any], samples_ns: list[int], n_tokens: int) -> dict[str, Any]:
    """The row and what its samples say: tokens per second of each, means and deviations."""
    samples_ts = [n_tokens * 1e9 / ns for ns in samples_ns]
    (avg_ns, stddev_ns), (avg_ts, stddev_ts) = spread([float(ns) for ns in samples_ns]), spread(samples_ts)
    return row | {
        "avg_ns": round(avg_ns),
        "stddev_ns": round(stddev_ns),
        "avg_ts": round(avg_ts, 6),
        "stddev_ts": round(stddev_ts, 6),
        "samples_ns": samples_ns,
        "samples_ts": [round(ts, 6) for ts in samples_ts],
    }


def test_name(row: dict[str, Any]) -> str:
    """pp512, tg128, pp512+tg128, each with @ d4096 for a depth."""
    parts = [f"pp{row['n_prompt']}"] * bool(row["n_prompt"]) + [f"tg{row['n_gen']}"] * bool(row["n_gen"])
    return "+".join(parts) + (f" @ d{row['n_depth']}" if row["n_depth"] else "")


class Printer:
    """Turns rows into text as they come: `begin`, `row`, `end` each return what to print, "" for nothing."""

    def __init__(self, kind: str) -> None:
        assert kind in FORMATS
        self._kind = kind
        self._rows: list[dict[str, Any]] = []

    def row(self, row: dict[str, Any]) -> str:
        self._rows.append(row)
        is_first = len(self._rows) == 1
        if self._kind == "jsonl":
            return json.dumps(row, ensure_ascii=False) + "\n"
        if self._kind == "csv":
            return _csv(list(row)) * is_first + _csv([_cell(value) for value in row.values()])
        if self._kind == "md":
            return _HEADER * (is_first or "ops" in row) + _table_line(row) + _ops(row)
        return ""

    def end(self) -> str:
        if self._kind != "json":
            return ""
        return "[\n" + ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in self._rows) + "\n]\n"


_COLUMNS = (("model", 28), ("size", 11), ("params", 10), ("kv", 11), ("load", 8), ("ub", 5), ("threads", 7),
            ("test", 18), ("t/s", 18), ("GB/s of ceiling", 22))  # fmt: skip
_HEADER = (
    "| " + " | ".join(f"{name:{width}}" for name, width in _COLUMNS) + " |\n"
    "| " + " | ".join("-" * (width - 1) + ":" for _, width in _COLUMNS) + " |\n"
)


def _table_line(row: dict[str, Any]) -> str:
    kv = row["type_k"] if row["type_k"] == row["type_v"] else f"{row['type_k']}/{row['type_v']}"
    cells = (
        row["model_type"], f"{row['model_size'] / (1 << 20):.2f} MiB", f"{row['model_n_params'] / 1e6:.2f} M", kv,
        row["load_mode"], row["n_ubatch"], row["n_threads"], test_name(row),
        f"{row['avg_ts']:.2f} ± {row['stddev_ts']:.2f}", _ceiling(row),
    )  # fmt: skip
    padded = (f"{cell!s:>{width}}" for cell, (_, width) in zip(cells, _COLUMNS, strict=True))
    return "| " + " | ".join(padded) + " |\n"


def _ops(row: dict[str, Any]) -> str:
    """The table of ops below a test's line, where it was asked for."""
    return "\n" + ops_table(row["ops"], row["ceiling_gbps"]) + "\n" if "ops" in row else ""


def _ceiling(row: dict[str, Any]) -> str:
    """What was reached of what can be read; what is not known looks unknown."""
    used, ceiling = row["used_gbps"], row["ceiling_gbps"]
    if used is None:
        return "-"
    return f"{used:.1f} of {ceiling:.1f} ({100 * used / ceiling:.0f}%)" if ceiling else f"{used:.1f} of ?"


def _cell(value: object) -> object:
    return json.dumps(value) if isinstance(value, list) else value


def _csv(cells: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(cells)
    return text.getvalue()
