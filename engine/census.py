"""Where each tensor's bytes live after the load, for whoever draws a map of them. Not here: putting them there
(weights/placement.py, weights/stream.py), what the page cache holds (appliance/machine/pagecache.py).
"""

from typing import NamedTuple

from engine.footprint import kind_of
from engine.weights.store import Store
from engine.weights.tensor import Matrix


class Home(NamedTuple):
    """A tensor of `n_bytes` from `offset` in the file: `held_bytes` of it are in memory of our own, the rest is mapped,
    locked (mapped and kept), streamed (read for each step), cached (experts, read as they are needed), or rows (read
    one by one as they are looked up). `parts` experts lie in it one after the other, 1 for other tensors; `kind` is one
    of footprint.KINDS."""

    name: str
    kind: str
    offset: int
    n_bytes: int
    held_bytes: int
    rest: str
    parts: int = 1


def census(store: Store, load_mode: str) -> tuple[Home, ...]:
    """Every tensor of the file that the model uses, in the file's order."""
    held: dict[str, tuple[int, str]] = {}
    for vector in store.vectors:
        held[vector.name] = (vector.k * 4, "held") if load_mode == "stream" else (0, "mapped")
    for table in store.tables:
        held[table.name] = (0, "rows" if table.ring else "mapped")
    multiplied: dict[str, tuple[int, str]] = {}
    for matrix in store.matrices:  # two may be halves of one tensor
        n_bytes, rest = _held(matrix, load_mode)
        multiplied[matrix.name] = multiplied.get(matrix.name, (0, ""))[0] + n_bytes, rest
    held |= multiplied  # a tied table is a matrix too, and that counts
    homes = [_home(store, name, n_bytes, rest, load_mode) for name, (n_bytes, rest) in held.items()]
    return tuple(sorted(homes, key=lambda home: home.offset))


def _home(store: Store, name: str, held_bytes: int, rest: str, load_mode: str) -> Home:
    info = store.gguf.tensors[name]
    kind = kind_of(name, sum(dim > 1 for dim in info.dims))
    parts = info.dims[-1] if kind == "experts" and len(info.dims) == 3 else 1
    rest = "locked" if rest == "mapped" and load_mode == "mlock" else rest
    return Home(name, kind, info.offset, info.n_bytes, min(held_bytes, info.n_bytes), rest, parts)


def _held(matrix: Matrix, load_mode: str) -> tuple[int, str]:
    if load_mode == "resident":
        return matrix.n_panels * matrix.panel_bytes, "held"
    if load_mode == "stream" and "_exps" in matrix.name:
        return 0, "cached"
    if not matrix.pieces:
        return 0, "mapped"
    pinned = sum(span.n_panels for span in matrix.pieces if span.address) * matrix.panel_bytes
    tail = matrix.n % 8 * matrix.panel_bytes // 8 if matrix.tail else 0
    return pinned + tail, "streamed"
