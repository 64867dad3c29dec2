"""Which memory the kernels may touch, for the checked build (COLIBRI_CHECKED=1); does nothing without it.

Whoever gives kernels an address says so here: `live` for memory that an object holds, `address_of` for an array. The
table lies at a fixed place, because the check (checked.py) is compiled with its address.

    block   i64   0 table   8 fault: who (pthread_self)   16 address   24 bytes   32 op record   64 zeros   320 rubbish
    table   i64   how many, then (start, end) of each, ascending, apart: regions that overlap are one

Not here: the look-up, what an engine does about a fault. Imports no numba.
"""

import os
import threading
import weakref
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from engine.errors import UsageError

_asked = os.environ.get("COLIBRI_CHECKED", "")
if _asked not in ("", "0", "1"):
    raise UsageError(f"COLIBRI_CHECKED={_asked} is neither 0 nor 1; set 1 for the checked kernels or leave it unset")
CHECKED = _asked == "1"
OUTSIDE = 2  # in the step's ERROR word: an op touched memory that nothing here holds
TABLE, WHO, ADDRESS, SIZE, RECORD_AT, ZEROS, RUBBISH = 0, 8, 16, 24, 32, 64, 320
LINE = 256  # bytes of either line; no access is wider
_KEPT = 64  # old tables, as a thread may still be looking into one

_words = np.zeros((RUBBISH + LINE) // 8, np.int64)
BLOCK = int(_words.ctypes.data)
_lock = threading.RLock()
_regions: dict[int, tuple[int, int]] = {}
_numbers = count()
_arrays: dict[int, "weakref.ref[np.ndarray]"] = {}
_tables: list[np.ndarray] = []
_is_stale = True


class Fault(NamedTuple):
    """The first bad access: `n_bytes` at `address`, from the op whose record lies at `record` (0: from no program)."""

    address: int
    n_bytes: int
    record: int


def live(owner: Any, address: int, n_bytes: int) -> None:
    """Kernels may touch these bytes for as long as `owner` lives."""
    global _is_stale
    if not CHECKED or n_bytes <= 0:
        return
    with _lock:
        number = next(_numbers)
        _regions[number] = (address, address + n_bytes)
        _is_stale = True
    weakref.finalize(owner, _forget, number).atexit = False


def address_of(array: np.ndarray) -> int:
    """The address of the array's first byte; its bytes are live as long as it is."""
    address = int(array.ctypes.data)
    known = _arrays.get(id(array))
    if CHECKED and (known is None or known() is not array):
        _arrays[id(array)] = weakref.ref(array)
        live(array, address, array.nbytes)
    return address


def _forget(number: int) -> None:
    global _is_stale
    with _lock:
        _regions.pop(number, None)
        _is_stale = True


def publish() -> None:
    """Make the regions known to the kernels; before each run."""
    global _is_stale
    with _lock:
        if not CHECKED or not _is_stale:
            return
        _is_stale = False
        spans: list[list[int]] = []
        for start, end in sorted([(BLOCK, BLOCK + _words.nbytes), *_regions.values()]):
            if spans and start < spans[-1][1]:
                spans[-1][1] = max(end, spans[-1][1])
            else:
                spans.append([start, end])
        table = np.array([len(spans), *(x for span in spans for x in span)], np.int64)
        _tables.append(table)
        del _tables[:-_KEPT]
        _words[TABLE // 8] = table.ctypes.data


def take_fault() -> Fault | None:
    """The first fault since the last call, and forget it."""
    if not CHECKED or _words[WHO // 8] == 0:
        return None
    found = Fault(*(int(_words[at // 8]) for at in (ADDRESS, SIZE, RECORD_AT)))
    _words[WHO // 8 : ZEROS // 8] = 0
    return found
