"""How much of a file lies in the page cache: what will not have to be read from disk. Not here: reading it in.

cachestat(2) tells on Linux 6.5 and later, mincore(2) before that. Newer kernels tell only those who own the file or may
write it; to everybody else mincore says "all of it", so that is asked first. A large file is sampled, SAMPLES stretches
spread evenly over it: some milliseconds whatever its size (walking all pages of 100 GB takes seconds).
"""

import ctypes
import functools
import mmap
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence

CACHESTAT = 451  # the number of the system call, the same on every architecture
SAMPLES = 64
STRETCH = 256 << 10
WHOLE_BYTES = SAMPLES * STRETCH
PAGE = mmap.PAGESIZE
MAP_FAILED = ctypes.c_void_p(-1).value


class _Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")]


def cached_share(path: str | os.PathLike[str]) -> float | None:
    """Share of the file's pages in memory, 0 to 1, estimated from a sample over WHOLE_BYTES; None where the kernel
    does not tell us."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
            return None
        stretches = list(_stretches(found.st_size))
        share = _share(_by_cachestat, fd, stretches)
        return _share(_by_mincore, fd, stretches) if share is None and _may_be_told(fd, path) else share
    except OSError:
        return None
    finally:
        os.close(fd)


def cached_bytes(path: str | os.PathLike[str], ranges: Sequence[tuple[int, int]]) -> list[int] | None:
    """Of each (offset, length) of the file the bytes in memory, by whole pages; None where the kernel does not tell us.

    Only cachestat is asked: it walks what is cached, and needs no map of the file.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = []
        for offset, length in ranges:
            n = _by_cachestat(fd, offset, length)
            if n is None:
                return None
            found.append(min(length, n * PAGE))
        return found
    finally:
        os.close(fd)


def _stretches(size: int) -> Iterator[tuple[int, int]]:
    """(offset, length) of what is looked at; offsets are whole pages."""
    if size <= WHOLE_BYTES:
        yield 0, size
        return
    for i in range(SAMPLES):
        yield (size - STRETCH) * i // (SAMPLES - 1) // PAGE * PAGE, STRETCH


def _share(look: Callable[[int, int, int], int | None], fd: int, stretches: list[tuple[int, int]]) -> float | None:
    cached = 0
    for offset, length in stretches:
        n = look(fd, offset, length)
        if n is None:
            return None
        cached += n
    return min(1.0, cached / sum(-(-length // PAGE) for _, length in stretches))


def _by_cachestat(fd: int, offset: int, length: int) -> int | None:
    counts = _Counts()
    where = _Range(offset, length)
    if _libc().syscall(CACHESTAT, fd, ctypes.byref(where), ctypes.byref(counts), 0) != 0:
        return None  # an older kernel, a file of somebody else, or a sandbox that does not know the call
    return int(counts.cached)


def _by_mincore(fd: int, offset: int, length: int) -> int | None:
    libc = _libc()
    address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, offset)
    if address == MAP_FAILED:
        return None
    try:
        marks = (ctypes.c_ubyte * -(-length // PAGE))()
        if libc.mincore(address, length, marks) != 0:
            return None
        return sum(mark & 1 for mark in marks)
    finally:
        libc.munmap(address, length)


def _may_be_told(fd: int, path: str | os.PathLike[str]) -> bool:
    """The kernel's own rule for mincore; who breaks it is told that every page is there."""
    if os.fstat(fd).st_uid != os.geteuid() and not os.access(path, os.W_OK, effective_ids=True):
        return False
    return _mincore_tells()


@functools.cache
def _mincore_tells() -> bool:
    """Some sandboxes say "there" of every page: ask about one that nobody ever touched."""
    with tempfile.TemporaryFile() as file:
        file.truncate(PAGE)
        return _by_mincore(file.fileno(), 0, PAGE) == 0


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    libc.syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
    return libc
