"""The model file while weights are read from it again and again: opened for large reads, watched (watch.py).

Large reads go past the page cache (O_DIRECT) where the file system takes that: cached pages count against a container's
limit and are never hit. Elsewhere each read gives its pages back. A model in several files is read as one: offsets
count in the whole. Not here: who reads what (stream.py).
"""

import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engine.errors import BadModelFile, ModelUnreadable
from engine.gguf.reader import Part
from engine.kernels.disk import BLOCK
from engine.kernels.program import Buffer
from engine.weights.watch import Watch

ALIGNED = ~(BLOCK - 1)


class Origin:
    """`fd` for large reads, `is_direct` past the page cache; `rows_fd` for single rows, without reading ahead. Both are
    what kernels/disk.py takes for a file: a descriptor, or the address of a table of several."""

    def __init__(self, parts: Sequence[Part], watch: Watch) -> None:
        self.parts, self.watch = parts, watch
        self.path = parts[0].path.absolute()
        self._rows = [_open(part.path) for part in parts]
        large = [_open_direct(part.path) for part in parts]
        self.is_direct = min(large) >= 0
        if not self.is_direct:
            for fd in large:
                if fd >= 0:
                    os.close(fd)
            large = [_open(part.path) for part in parts]
        self._large = large
        self._tables = [_table(parts, fds) for fds in (self._rows, large)] if len(parts) > 1 else []
        self.rows_fd, self.fd = (t.address for t in self._tables) if self._tables else (self._rows[0], large[0])
        if not all(watch.is_of(i, fd) for i, fd in enumerate(large)):
            self.close()
            raise BadModelFile(f"{self.path.name} changed while it was being loaded; load it again")

    def read(self, offset: int, n_bytes: int) -> bytes:
        """A few bytes; BadModelFile when they cannot be had."""
        i, offset = self._within(offset)
        data = os.pread(self._rows[i], n_bytes, offset)
        if len(data) != n_bytes:
            raise BadModelFile(f"{self.parts[i].path.name} ends too early; get a whole file")
        return data

    def _within(self, offset: int) -> tuple[int, int]:
        """Which part a byte of the whole lies in, and where in that."""
        i = next(i for i in reversed(range(len(self.parts))) if self.parts[i].begin <= offset)
        return i, offset - self.parts[i].begin

    def read_into(self, memory: memoryview, offset: int, n_bytes: int) -> int:
        """n_bytes from `offset` on; `memory` begins at a multiple of 4096 and has room for 8192 bytes more. Returns
        where in it they begin. BadModelFile when they cannot be had."""
        i, offset = self._within(offset)
        fd, name = self._large[i], self.parts[i].path.name
        start, skip = offset & ALIGNED, offset & ~ALIGNED
        want, done = skip + n_bytes, 0
        size = -(-want // BLOCK) * BLOCK
        while done < want:
            try:
                got = os.preadv(fd, [memory[done:size]], start + done)
            except OSError as error:
                why = os.strerror(error.errno or 0).lower()
                raise ModelUnreadable(f"{name} cannot be read at byte {start + done:,}: {why}") from error
            if done + got < want and (done + got) // BLOCK * BLOCK <= done:
                raise BadModelFile(f"{name} ends too early; get a whole file")
            done = done + got if done + got >= want else (done + got) // BLOCK * BLOCK
        if not self.is_direct:
            os.posix_fadvise(fd, start, size, os.POSIX_FADV_DONTNEED)
        return skip

    def close(self) -> None:
        for fd in (*self._rows, *self._large):
            os.close(fd)


def _table(parts: Sequence[Part], fds: Sequence[int]) -> Buffer:
    """What kernels/disk.py takes for several files."""
    table = Buffer(8 + 16 * len(parts))
    words = [len(parts)]
    for part, fd in zip(parts, fds, strict=True):
        words += (part.begin, fd)
    table.view(np.int64)[:] = words
    return table


def _open(path: Path) -> int:
    """A descriptor for reads here and there."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    return fd


def _open_direct(path: Path) -> int:
    """A descriptor for direct reads, tried with one block: some file systems open and then refuse to read.
    -1 where that is so."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:
        return -1
    with mmap.mmap(-1, BLOCK) as probe:
        try:
            os.preadv(fd, [probe], 0)
        except OSError:
            os.close(fd)
            return -1
    return fd
