"""Reading files from compiled code: libc's `pread`, its errno, giving pages back. Not here: who reads what (ring.py).

Where a file is meant, `fd` is a descriptor, or the address of a table of the files that are read as one:

    files    0 n    8 + 16 i  where file i begins in the whole, ascending from 0    16 + 16 i  its descriptor

The checked build does not look at what `pread` writes to: whoever makes a request asserts its extents.
"""

from typing import Any

from engine.kernels.jit import inner
from engine.kernels.simd import ld_i64
from engine.kernels.vec import I32, I64, call, i64, make

SHORT = -4096  # the file ended before the bytes that were needed; other failures are -errno
BLOCK = 4096  # what O_DIRECT wants addresses, offsets and lengths to be multiples of
EINTR = 4
DONTNEED = 4  # posix_fadvise
MOST_FD = 0x7FFFFFFF


def _pread(b: Any, fd: Any, p: Any, n: Any, offset: Any) -> Any:
    return call(b, "pread", I64, [b.trunc(fd, I32), p, n, offset])


def _errno(b: Any) -> Any:
    at = call(b, "__errno_location", I64, [])
    return b.sext(b.load(b.inttoptr(at, I32.as_pointer())), I64)


def _fadvise(b: Any, fd: Any, offset: Any, n: Any, advice: Any) -> Any:
    return b.sext(call(b, "posix_fadvise", I32, [b.trunc(fd, I32), offset, n, b.trunc(advice, I32)]), I64)


pread = make(i64, (i64,) * 4, _pread)  # (fd, address, n, offset) -> bytes read, or -1
errno = make(i64, (), _errno)
fadvise = make(i64, (i64,) * 4, _fadvise)  # (fd, offset, n, advice)


@inner
def _file_of(files, offset):
    """The table's entry of the file that holds the byte at `offset`."""
    entry = files + 8 + 16 * (ld_i64(files) - 1)
    while offset < ld_i64(entry):
        entry -= 16
    return entry


@inner
def drop_at(fd, offset, n):
    """Give the pages of n bytes back."""
    if fd > MOST_FD:
        entry = _file_of(fd, offset)
        fadvise(ld_i64(entry + 8), offset - ld_i64(entry), n, DONTNEED)
    else:
        fadvise(fd, offset, n, DONTNEED)


@inner
def read_at(fd, p, n, offset, needed):
    """Up to n bytes to p, at least `needed` of them: 0, or -errno or SHORT. They lie in one file.

    A direct read that stops in the middle of a block is taken up at the block's begin, as a file's last one is.
    """
    if fd > MOST_FD:
        entry = _file_of(fd, offset)
        fd, offset = ld_i64(entry + 8), offset - ld_i64(entry)
    done = 0
    while done < needed:
        got = pread(fd, p + done, n - done, offset + done)
        if got < 0:
            code = errno()
            if code != EINTR:
                return -code
        elif done + got < needed and (got == 0 or (done + got) // BLOCK * BLOCK <= done):
            return SHORT
        else:
            done = done + got if done + got >= needed else (done + got) // BLOCK * BLOCK
    return 0
