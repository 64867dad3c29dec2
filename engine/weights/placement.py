"""Carries out where weights live: panels in anonymous memory, or the mapped file as it is. Not here: the choice.

    resident   repacked to 8-row panels in 2 MiB-aligned anonymous memory while the file is read once; pages that are
               packed are unmapped at once, so that a load takes the file's size and a few MB, never twice the size
    mmap       nothing moves; a ragged last group of rows is copied and padded
    mlock      mmap, and the kernel is asked to keep the pages
    stream     a part as panels, the rest read again for every step: stream.py
"""

import ctypes
import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from engine.kernels.pack import pack_panels
from engine.kernels.program import Buffer
from engine.kernels.regions import CHECKED, live
from engine.weights.store import Store
from engine.weights.tensor import Matrix

HUGE = 2 << 20
GAP = 64 if CHECKED else 0  # dead bytes between matrices: a wrong extent then ends in them
PAGE = mmap.PAGESIZE
STRETCH = 8 << 20  # bytes packed, unmapped and reported in one go: what each thread may hold of the file
AHEAD = 2  # stretches that are asked for while one is packed: a disk is busy all along


class Arena:
    """Anonymous memory for all panels, asked to be huge pages where the host allows it (`madvise`)."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        self._map = mmap.mmap(-1, n_bytes + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._map.madvise(mmap.MADV_HUGEPAGE)
        start = np.frombuffer(self._map, np.uint8).ctypes.data
        self._next = -(-start // HUGE) * HUGE
        self._end = start + n_bytes + HUGE

    def take(self, n_bytes: int, align: int = 64) -> int:
        """The address of n_bytes, a multiple of `align`."""
        at = -(-self._next // align) * align
        self._next = -(-(at + n_bytes) // 64) * 64 + GAP
        assert self._next <= self._end, "the arena is too small"
        live(self, at, n_bytes)
        return at

    def give_back(self, address: int, n_bytes: int) -> None:
        """Whole pages of these bytes go back to the system; they read as zeros when they are used again."""
        begin = int(np.frombuffer(self._map, np.uint8).ctypes.data)
        start, end = -(-(address - begin) // PAGE) * PAGE, (address - begin + n_bytes) // PAGE * PAGE
        if end > start:
            self._map.madvise(mmap.MADV_DONTNEED, start, end - start)

    def populate(self) -> None:
        """Have all of it in memory now."""
        np.frombuffer(self._map, np.uint8)[:: mmap.PAGESIZE] = 0


def place_resident(store: Store, threads: int, on_progress: Callable[[int, int], None]) -> Arena:
    """Pack every matrix into a new arena; on_progress(bytes done, of all)."""
    sizes = [m.n_panels * m.panel_bytes for m in store.matrices]
    arena = Arena(sum(sizes) + (64 + GAP) * len(sizes))
    done, total = 0, sum(sizes)
    _ = pack_panels.address
    source = _Source(store)
    on_progress(0, total)
    with ThreadPoolExecutor(max(1, threads)) as pool:
        futures = []
        for matrix, size in zip(store.matrices, sizes, strict=True):
            out = arena.take(size)
            futures += [pool.submit(_pack, source, matrix, out, p, q) for p, q in _stretches(matrix)]
            matrix.address, matrix.body = out, matrix.quant.panels
        for future in futures:
            done += future.result()
            on_progress(done, total)
    return arena


def _stretches(matrix: Matrix) -> list[tuple[int, int]]:
    step = max(1, STRETCH // matrix.panel_bytes)
    return [(p, min(p + step, matrix.n_panels)) for p in range(0, matrix.n_panels, step)]


class _Source:
    """The file's pages on their way through: wanted soon, then not mapped any more (the page cache keeps them)."""

    def __init__(self, store: Store) -> None:
        self._begin, self._end = store.base, store.base + store.gguf.n_bytes
        # By libc and not by mmap.madvise, which holds the GIL while a disk is asked.
        self._madvise = ctypes.CDLL(None).madvise

    def soon(self, start: int, stop: int) -> None:
        self._advise(start, min(stop, self._end), mmap.MADV_WILLNEED)

    def done(self, start: int, stop: int) -> None:
        """Another thread that still reads a page at the edge takes it from the page cache again."""
        self._advise(start, stop, mmap.MADV_DONTNEED)

    def _advise(self, start: int, stop: int, advice: int) -> None:
        start -= start % PAGE
        if self._begin <= start < stop:
            self._madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), advice)


def _pack(source: _Source, matrix: Matrix, out: int, p0: int, p1: int) -> int:
    """Panels p0..p1; the last one is padded with zero rows when the matrix ends in it."""
    size, pack = matrix.panel_bytes, matrix.quant.pack.address
    if matrix.type.is_folded:
        return _unfold(matrix, out, p0, p1)
    for start, p, q in matrix.runs(p0, p1):
        whole = min(q, matrix.n // 8)
        stop = start + min((q - p) * size, matrix.n * size // 8 - p * size)
        source.soon(start + AHEAD * STRETCH, stop + AHEAD * STRETCH)
        if whole > p:
            pack_panels(pack, start, matrix.blocks, out + p * size, size, whole - p)
        if q > whole:
            last = _padded(matrix)
            pack_panels(pack, last.address, matrix.blocks, out + whole * size, size, 1)
        source.done(start, stop)
    return (p1 - p0) * size


def _unfold(matrix: Matrix, out: int, p0: int, p1: int) -> int:
    """The same of a type whose blocks are made here: rows of two bits a weight, the scale behind all of them."""
    size, bits, rows = matrix.panel_bytes, matrix.k // 4, min(8 * p1, matrix.n) - 8 * p0
    made, scale = Buffer((p1 - p0) * size), matrix.source + matrix.n * bits
    matrix.quant.unfold(matrix.source + 8 * p0 * bits, rows * matrix.blocks, scale, made.address)
    pack_panels(matrix.quant.pack.address, made.address, matrix.blocks, out + p0 * size, size, p1 - p0)
    return (p1 - p0) * size


def _padded(matrix: Matrix) -> Buffer:
    """The rows behind the last whole eight, filled up with zeros."""
    buffer = Buffer(matrix.panel_bytes)
    start = matrix.n // 8 * matrix.panel_bytes
    n_bytes = matrix.n * matrix.panel_bytes // 8 - start
    ctypes.memmove(buffer.address, matrix.source + start, n_bytes)
    return buffer


def place_mapped(store: Store, lock: bool) -> str:
    """Leave the weights in the file; returns a note when locking them was asked for and refused."""
    for matrix in store.matrices:
        if matrix.n % 8:
            matrix.tail = _padded(matrix)
    store.map.madvise(mmap.MADV_WILLNEED)
    if not lock:
        return ""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlock(ctypes.c_void_p(store.base), ctypes.c_size_t(store.gguf.n_bytes)) == 0:
        return ""
    reason = os.strerror(ctypes.get_errno()).lower()
    return f"the kernel refused to lock {store.gguf.n_bytes >> 20} MiB ({reason}); raise the memlock limit (ulimit -l)"
