"""The model file while weights are read from it again and again: opened for large reads, watched (watch.py).

Large reads go past the page cache (O_DIRECT) where the file system takes that: cached pages count against a container's
limit and are never hit. Elsewhere each read gives its pages back. Not here: who reads what (stream.py).
"""

import mmap
import os
from pathlib import Path

from engine.errors import BadModelFile
from engine.kernels.disk import BLOCK
from engine.weights.watch import Watch

ALIGNED = ~(BLOCK - 1)


class Origin:
    """`fd` for large reads, `is_direct` past the page cache; `rows_fd` for single rows, without reading ahead."""

    def __init__(self, watch: Watch) -> None:
        path = self.path = watch.path
        self.watch = watch
        self.rows_fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.posix_fadvise(self.rows_fd, 0, 0, os.POSIX_FADV_RANDOM)
        self.fd, self.is_direct = _open_direct(path)
        if not self.is_direct:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_RANDOM)
        if not watch.is_of(self.fd):
            self.close()
            raise BadModelFile(f"{path.name} changed while it was being loaded; load it again")

    def read(self, offset: int, n_bytes: int) -> bytes:
        """A few bytes; BadModelFile when they cannot be had."""
        data = os.pread(self.rows_fd, n_bytes, offset)
        if len(data) != n_bytes:
            raise BadModelFile(f"{self.path.name} ends too early; get a whole file")
        return data

    def read_into(self, memory: memoryview, offset: int, n_bytes: int) -> int:
        """n_bytes from `offset` on; `memory` begins at a multiple of 4096 and has room for 8192 bytes more. Returns
        where in it they begin. BadModelFile when they cannot be had."""
        start, skip = offset & ALIGNED, offset & ~ALIGNED
        want, done = skip + n_bytes, 0
        size = -(-want // BLOCK) * BLOCK
        while done < want:
            try:
                got = os.preadv(self.fd, [memory[done:size]], start + done)
            except OSError as error:
                why = os.strerror(error.errno or 0).lower()
                raise BadModelFile(f"{self.path.name} cannot be read at byte {start + done:,}: {why}") from error
            if done + got < want and (done + got) // BLOCK * BLOCK <= done:
                raise BadModelFile(f"{self.path.name} ends too early; get a whole file")
            done = done + got if done + got >= want else (done + got) // BLOCK * BLOCK
        if not self.is_direct:
            os.posix_fadvise(self.fd, start, size, os.POSIX_FADV_DONTNEED)
        return skip

    def close(self) -> None:
        os.close(self.fd)
        os.close(self.rows_fd)


def _open_direct(path: Path) -> tuple[int, bool]:
    """A descriptor for direct reads, tried with one block: some file systems open and then refuse to read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:
        return -1, False
    with mmap.mmap(-1, BLOCK) as probe:
        try:
            os.preadv(fd, [probe], 0)
        except OSError:
            os.close(fd)
            return -1, False
    return fd, True
