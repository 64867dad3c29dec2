"""glibc's heap, kept from holding what one large request needed once. Not here: how much a request may need.

Without it the process stays near 150 MB after a few bodies of some megabytes (measured: 147 MB against 93): each
thread that tokenised has an arena of its own, and freed blocks below the top of an arena are never given back.
"""

import contextlib
import ctypes

M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
LARGE_BYTES = 128 * 1024
"""Blocks from here on are mapped each by itself and returned when freed; a fixed value stops glibc from raising it."""


def settle() -> None:
    """Call once, before threads start; does nothing where the C library is another one."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_ARENA_MAX, 2)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


def trim() -> None:
    """Give free memory back now; some milliseconds, so after large requests only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
