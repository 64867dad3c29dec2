"""`colibri bench --per-op`: what each op of a step costs, as rows and as a table. Not here: taking the time (engine).

Times are means over the threads, so the rows of a step add up to it; waiting for each other is a row like any other.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from appliance.cli.columns import columns

SCOPES = ("op", "layer")


def op_rows(times: Iterable[Any], scope: str, gbps: float | None) -> list[dict[str, Any]]:
    """`times` (engine OpTimes) summed by op and tensor, and by layer too with scope "layer", in the program's order.

    ms and n are a step's; the ceiling is the share of `gbps`, the memory's reading speed, that the op reached.
    """
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for t in times:
        groups.setdefault((t.op, t.tensor, t.layer if scope == "layer" else None), []).append(t)
    whole = sum(t.ns for group in groups.values() for t in group) or 1.0
    return [_row(key, group, whole, gbps) for key, group in groups.items()]


def _row(key: tuple[Any, ...], group: list[Any], whole: float, gbps: float | None) -> dict[str, Any]:
    op, tensor, layer = key
    steps = max(1, group[0].n_steps)
    ns, n_bytes, n_macs = (sum(getattr(t, name) for t in group) for name in ("ns", "n_bytes", "n_macs"))
    reached = n_bytes / ns if ns and n_bytes else None
    return {
        "op": op, "tensor": tensor, "layer": layer, "n": len(group), "ms": round(ns / steps / 1e6, 6),
        "share": round(ns / whole, 5), "bytes": round(n_bytes / steps), "gbps": _rounded(reached),
        "gmacs": _rounded(n_macs / ns if ns and n_macs else None),
        "of_ceiling": _rounded(reached / gbps if reached and gbps else None),
    }  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def ops_table(rows: list[dict[str, Any]], gbps: float | None) -> str:
    """One test's rows for people, a line for what the threads waited and one for all."""
    is_by_layer = any(row["layer"] is not None for row in rows)
    head = ["op", "tensor", *["layer"] * is_by_layer, "n", "ms/step", "time", "GB/s", "GMAC/s", "of ceiling"]
    lines = [head]
    for row in rows:
        layer = ["-" if row["layer"] is None else str(row["layer"])] * is_by_layer
        lines.append([row["op"], row["tensor"] or "-", *layer, *_cells(row)])
    for name, some in (("waiting", [r for r in rows if r["op"] == "barrier"]), ("all", rows)):
        lines.append([name, "", *[""] * is_by_layer, *_cells(_total(some, gbps))])
    return columns(lines, right=range(2, len(head))) + "\n"


def _total(rows: list[dict[str, Any]], gbps: float | None) -> dict[str, Any]:
    ms, n_bytes = (sum(row[name] for row in rows) for name in ("ms", "bytes"))
    reached = n_bytes / ms / 1e6 if ms and n_bytes else None
    return {
        "n": sum(row["n"] for row in rows), "ms": ms, "share": sum(row["share"] for row in rows), "gbps": reached,
        "gmacs": None, "of_ceiling": reached / gbps if reached and gbps else None,
    }  # fmt: skip


def _cells(row: dict[str, Any]) -> Iterator[str]:
    yield str(row["n"])
    yield f"{row['ms']:.3f}"
    yield f"{row['share']:.1%}"
    for name in ("gbps", "gmacs"):
        yield "-" if row[name] is None else f"{row[name]:.1f}"
    yield "-" if row["of_ceiling"] is None else f"{row['of_ceiling']:.0%}"
