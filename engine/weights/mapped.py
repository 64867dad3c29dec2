"""The files of a model mapped one behind the other, so that an offset in the whole is an address. Not here: claims."""

import ctypes
import mmap
import os
from collections.abc import Callable, Sequence

import numpy as np

from engine.errors import BadModelFile
from engine.gguf.reader import Part

_MAP_FIXED = 0x10
_FAILED = ctypes.c_void_p(-1).value


def mapped(parts: Sequence[Part], is_same: Callable[[int, int], bool]) -> mmap.mmap:
    """Read-only pages of all parts, unmapped by close(). `is_same(i, fd)` says whether an open file is still part i;
    BadModelFile when it is not, or has another size than its header was read with."""
    end = parts[-1].begin + parts[-1].n_bytes
    whole: mmap.mmap | None = None
    if len(parts) > 1:
        # Room that nobody may touch, then each file over its place in it: closing the room closes them all.
        whole = mmap.mmap(-1, end, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)
    for i, part in enumerate(parts):
        with part.path.open("rb") as file:
            fd = file.fileno()
            if not is_same(i, fd) or os.fstat(fd).st_size != part.n_bytes:
                raise BadModelFile(f"{part.path.name} changed while it was being loaded; load it again")
            if whole is None:
                return mmap.mmap(fd, part.n_bytes, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
            _map_over(whole, part, fd)
    assert whole is not None
    return whole


def _map_over(whole: mmap.mmap, part: Part, fd: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    at = int(np.frombuffer(whole, np.uint8).ctypes.data) + part.begin
    got = libc.mmap(at, part.n_bytes, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, fd, 0)
    if got == _FAILED:
        why = os.strerror(ctypes.get_errno()).lower()
        raise BadModelFile(f"{part.path.name} cannot be mapped ({why})")
