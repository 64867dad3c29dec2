"""Which parts of the matrices stay in memory when not all of them can, by sizes alone. Not here: reading (stream.py).

Every token needs every part once, always in the same order: of what is read again each time, a cache that keeps the
latest never hits. A fixed set hits always, so a token reads what is not in it and no more. It is spread evenly over the
order of use, so that the disk is busy all along and not only in some layers. Importing this costs no numba.
"""

from collections.abc import Sequence
from dataclasses import dataclass

MIB = 1 << 20
CHUNK = 4 * MIB
"""Bytes read at once, at most."""
RING = 32 * MIB
"""Sixteen reads of 2 MiB: as fast as 64 MiB (2.0 tokens/s both, 91% of what the disk gives), and what is saved is
pinned. With 16 MiB the disk gives 10% less, with 8 MiB 20%."""
CHUNKS = 16  # in a ring, more where they are small
LEAST_CHUNKS = 4
SLACK = 8192  # a direct read begins and ends at multiples of 4096


@dataclass(frozen=True, slots=True)
class Extent:
    """A matrix as this file sees it: `n_panels` whole groups of eight rows, `panel_bytes` each."""

    name: str
    panel_bytes: int
    n_panels: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Panels first..end of matrix number `matrix`."""

    matrix: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Unit:
    """What is kept or read as one: a piece of a matrix, or the same rows of two that one op multiplies (gate, up)."""

    cuts: tuple[Cut, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Split:
    """Units in order of use and which of them stay; bytes of both kinds; chunks of `chunk_bytes` in the ring."""

    units: tuple[Unit, ...]
    stays: tuple[bool, ...]
    pinned_bytes: int
    streamed_bytes: int
    chunk_bytes: int
    n_slots: int


def split(extents: Sequence[Extent], pinned_bytes: int, ring_bytes: int = RING) -> Split:
    """At most pinned_bytes stay; the rest goes through a ring of at most ring_bytes (four chunks at least)."""
    largest = max((e.panel_bytes for e in extents if e.n_panels), default=1)
    chunk = max(largest, min(CHUNK, ring_bytes // CHUNKS - SLACK))
    units = _units(extents, chunk)
    stays = _spread([u.n_bytes for u in units], pinned_bytes)
    n_streamed = sum(len(u.cuts) for u, stay in zip(units, stays, strict=True) if not stay)
    kept = sum(u.n_bytes for u, stay in zip(units, stays, strict=True) if stay)
    total = sum(u.n_bytes for u in units)
    most = max(LEAST_CHUNKS, ring_bytes // (chunk + SLACK))
    return Split(units, stays, kept, total - kept, chunk, _slots(n_streamed, most))


def _units(extents: Sequence[Extent], chunk: int) -> tuple[Unit, ...]:
    groups: dict[str, list[int]] = {}
    for i, extent in enumerate(extents):
        if extent.n_panels:
            groups.setdefault(extent.name.replace("ffn_up", "ffn_gate"), []).append(i)
    units = []
    for group in groups.values():
        n = extents[group[0]].n_panels
        assert all(extents[i].n_panels == n for i in group), [extents[i] for i in group]
        most = max(1, chunk // max(extents[i].panel_bytes for i in group))
        pieces = -(-n // most)
        for j in range(pieces):
            first, end = n * j // pieces, n * (j + 1) // pieces
            n_bytes = sum((end - first) * extents[i].panel_bytes for i in group)
            units.append(Unit(tuple(Cut(i, first, end) for i in group), n_bytes))
    return tuple(units)


def _spread(sizes: Sequence[int], pinned_bytes: int) -> tuple[bool, ...]:
    """Keep whenever less is kept than the even share of what has passed."""
    total, passed, kept = sum(sizes), 0, 0
    out = []
    for size in sizes:
        passed += size
        stays = (kept + size) * total <= passed * min(pinned_bytes, total)
        kept += size * stays
        out.append(stays)
    return tuple(out)


def _slots(n: int, most: int) -> int:
    """Chunks of a ring that n chunks go through again and again: of the largest few numbers the one that divides n
    best. What is left over at the border of two passes is read out of turn."""
    if n <= most:
        return n
    least = max(LEAST_CHUNKS, most - most // 8)
    return max(range(least, most + 1), key=lambda s: (-(-n % s), s))
