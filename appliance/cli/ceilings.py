"""How fast this machine reads memory: what no decoder can pass. Not here: what the engine reaches.

A token of an answer reads every weight once, so bytes per second of plain reading bound it. The probe is libc's memchr
over memory that holds no match: vector loads and a compare, on as many threads as the engine uses; ctypes releases the
GIL for the call.
"""

import ctypes
import mmap
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Barrier, Lock, Thread

MIB = 1 << 20
# Past any cache of a machine of this kind, and small enough to be there next to a model.
PROBE_BYTES = 192 * MIB
PASSES = 9


def read_gbps(threads: int, of: Callable[[list[float]], float] = min) -> float | None:
    """10^9 bytes per second that `threads` threads read together; None if it cannot be told. `of` chooses among the
    seconds of the passes: the best bounds what can be, the median tells what will be."""
    try:
        memchr = ctypes.CDLL(None).memchr
    except (OSError, AttributeError):
        return None
    memchr.argtypes, memchr.restype = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t), ctypes.c_void_p
    try:
        area = mmap.mmap(-1, PROBE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        return None
    with suppress(OSError, AttributeError):  # a kernel without huge pages
        area.madvise(mmap.MADV_HUGEPAGE)
    # The view holds the area and each reader holds the view, so an interrupt cannot unmap what is being read.
    view = (ctypes.c_char * PROBE_BYTES).from_buffer(area)
    ctypes.memset(view, 1, PROBE_BYTES)  # pages never written are all one page of zeros
    return PROBE_BYTES / of(_passes(memchr, view, max(1, threads))) / 1e9


def _passes(memchr: "ctypes._NamedFuncPointer", view: "ctypes.Array[ctypes.c_char]", threads: int) -> list[float]:
    """Seconds of each pass, from the first reader's start to the last one's end, as the readers saw it."""
    share = PROBE_BYTES // threads // 4096 * 4096
    barrier, lock = Barrier(threads), Lock()
    spans: list[list[tuple[float, float]]] = [[] for _ in range(PASSES)]

    def read(i: int) -> None:
        length = share if i < threads - 1 else PROBE_BYTES - share * i
        for span in spans:
            barrier.wait()
            start = time.perf_counter()
            memchr(ctypes.addressof(view) + share * i, 2, length)
            with lock:
                span.append((start, time.perf_counter()))

    readers = [Thread(target=read, args=(i,), daemon=True) for i in range(threads)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return [max(end for _, end in span) - min(start for start, _ in span) for span in spans]
