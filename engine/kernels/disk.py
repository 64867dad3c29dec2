"""Reading files from compiled code: libc's `pread`, its errno, giving pages back. Not here: who reads what (ring.py).

The checked build does not look at what `pread` writes to: whoever makes a request asserts its extents.
"""

from typing import Any

from engine.kernels.jit import inner
from engine.kernels.vec import I32, I64, call, i64, make

SHORT = -4096  # the file ended before the bytes that were needed; other failures are -errno
BLOCK = 4096  # what O_DIRECT wants addresses, offsets and lengths to be multiples of
EINTR = 4
DONTNEED = 4  # posix_fadvise


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
def read_at(fd, p, n, offset, needed):
    """Up to n bytes to p, at least `needed` of them: 0, or -errno or SHORT.

    A direct read that stops in the middle of a block is taken up at the block's begin, as a file's last one is.
    """
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
