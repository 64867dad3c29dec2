"""Where the weights are now, layer by layer: our own memory, the page cache, or only the disk. Not here: HTTP, putting
them there (engine/weights).

A scan asks the kernel about every tensor that is mapped, so it is kept for FRESH_S; a map is a scan binned to as many
rows and columns as somebody can show. A cell is 0 to 255, the share of its bytes that need no disk; None: not told.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.machine.pagecache import cached_bytes

FRESH_S = 5.0
CACHED = ("mapped", "locked", "rows")
BY = ("tensor", "expert")


@dataclass(frozen=True, slots=True)
class Home:
    """A tensor as the engine tells of it; see engine.census.Home, which needs numba to be imported."""

    name: str
    kind: str
    offset: int
    n_bytes: int
    held_bytes: int
    rest: str
    parts: int


@dataclass(frozen=True, slots=True)
class Experts:
    """What the engine tells of its cache: `held` and `heat` are a byte for each expert, layer after layer."""

    n_experts: int
    held: bytes
    heat: bytes

    @classmethod
    def read(cls, frame: Mapping[str, Any] | None) -> "Experts | None":
        """Of a worker's frame; None without one."""
        if not frame:
            return None
        return cls(frame["shape"][1], bytes.fromhex(frame["held"]), bytes.fromhex(frame["heat"]))


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor, or one expert of it; `memory` of its bytes need no disk, None: not told. `layer` None: of no layer.
    `heat` 0 to 255: how much it was used lately beside the hottest expert; None for what has no such count."""

    layer: int | None
    name: str
    kind: str
    expert: int | None
    n_bytes: int
    memory: int | None
    heat: int | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """One look at a file; `at` by the clock, `cost_ms` of it."""

    parts: tuple[Part, ...]
    at: float
    cost_ms: float


class Scanner:
    """Looks when asked, at most every FRESH_S for one load. Fit for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: tuple[object, Scan] | None = None
        self._lock = threading.Lock()

    def read(self, path: Path, homes: Sequence[Home], load: object, experts: Experts | None = None) -> Scan:
        """`load` names the load: another one is looked at anew."""
        with self._lock:
            now = self._clock()
            if self._kept is None or self._kept[0] != load or now - self._kept[1].at >= FRESH_S:
                began = time.perf_counter()
                parts = tuple(_parts(path, homes, experts))
                self._kept = (load, Scan(parts, now, (time.perf_counter() - began) * 1e3))
            return self._kept[1]

    def age_s(self, scan: Scan) -> float:
        return max(0.0, self._clock() - scan.at)


def _parts(path: Path, homes: Sequence[Home], experts: Experts | None) -> list[Part]:
    pieces = [(home, i, home.n_bytes // home.parts) for home in homes for i in range(home.parts)]
    asked = [(home.offset + i * size, size) for home, i, size in pieces if _is_asked(home)]
    told = cached_bytes(path, asked) if asked else []
    cached = iter(told or ())
    layers = sorted({layer for home in homes if home.rest == "cached" and (layer := _layer(home.name)) is not None})
    found = []
    for home, i, size in pieces:
        memory: int | None = home.held_bytes // home.parts
        if _is_asked(home):
            memory = None if told is None else max(memory or 0, next(cached))
        layer, heat = _layer(home.name), None
        if home.rest == "cached" and layer is not None:
            at = layers.index(layer) * (experts.n_experts if experts else 0) + i
            memory = size * bool(experts.held[at]) if experts else None
            heat = experts.heat[at] if experts else None
        name = re.sub(r"^blk\.\d+\.|\.weight$", "", home.name)
        found.append(Part(layer, name, home.kind, i if home.parts > 1 else None, size, memory, heat))
    return found


def _layer(name: str) -> int | None:
    found = re.match(r"blk\.(\d+)\.", name)
    return int(found[1]) if found else None


def _is_asked(home: Home) -> bool:
    """Whether the page cache may hold what we do not."""
    return home.rest in CACHED and home.held_bytes < home.n_bytes


def map_of(scan: Scan, by: str, n_rows: int, n_columns: int) -> dict[str, Any]:
    """The scan as a grid: rows are layers; columns are tensors, norms together, or experts. `others` belong to no
    layer; `groups` are sums by kind."""
    parts = [p for p in scan.parts if p.layer is not None and (by == "tensor" or p.expert is not None)]
    layers = sorted({p.layer for p in parts if p.layer is not None})
    columns = list(dict.fromkeys(_column(p, by) for p in parts))
    rows, cols = _bins(len(layers), n_rows), _bins(len(columns), n_columns)
    row_of = {layers[k]: i for i, (first, end) in enumerate(rows) for k in range(first, end)}
    column_of = {columns[k]: j for j, (first, end) in enumerate(cols) for k in range(first, end)}
    cells: list[list[list[Part]]] = [[[] for _ in cols] for _ in rows]
    for part in parts:
        assert part.layer is not None
        cells[row_of[part.layer]][column_of[_column(part, by)]].append(part)
    heads = [columns[first:end] for first, end in cols]
    return {
        "by": by, "n_layers": len(layers), "n_columns": len(columns),
        "rows": [[layers[first], layers[end - 1]] for first, end in rows],
        "columns": heads if by == "tensor" else [[head[0], head[-1]] for head in heads],
        "cells": [[_share(cell) for cell in row] for row in cells],
        "heat": [[_heat(cell) for cell in row] for row in cells],
        "groups": _groups(scan.parts),
        "others": [{"name": p.name, "bytes": p.n_bytes, "memory_bytes": p.memory}
                   for p in scan.parts if p.layer is None],
    }  # fmt: skip


def _column(part: Part, by: str) -> Any:
    if by == "expert":
        return part.expert
    return "norms" if part.kind == "norms" else part.name


def _bins(n: int, most: int) -> list[tuple[int, int]]:
    """First and end of at most `most` neighbourhoods of n things."""
    k = min(n, most)
    return [(n * i // k, n * (i + 1) // k) for i in range(k)]


def _share(cell: Sequence[Part]) -> int | None:
    known = [(p.n_bytes, p.memory) for p in cell if p.memory is not None]
    total = sum(n for n, _ in known)
    return round(255 * sum(memory for _, memory in known) / total) if total else None


def _heat(cell: Sequence[Part]) -> int | None:
    known = [p.heat for p in cell if p.heat is not None]
    return round(sum(known) / len(known)) if known else None


def _groups(parts: Iterable[Part]) -> dict[str, dict[str, int | None]]:
    """Bytes by kind and in all; None where one of them is not told."""
    found: dict[str, dict[str, int | None]] = {}
    for part in parts:
        for kind in (part.kind, "total"):
            sums = found.setdefault(kind, {"bytes": 0, "memory_bytes": 0})
            before, memory = sums["memory_bytes"], part.memory
            sums["bytes"] = (sums["bytes"] or 0) + part.n_bytes
            sums["memory_bytes"] = None if before is None or memory is None else before + memory
    return found
