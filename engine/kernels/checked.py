"""The checked build: every load and store asks `colibri_check` for its address (vec.py, sync.py). Not here: regions.

What lies in no region is not touched: a read gets zeros, a write goes into rubbish, the first such access is noted in
the block of regions.py. The replay below then names the op and stops the step. COLIBRI_CHECKED=1 switches it on, for
all kernels; they are some 20 times slower and cached apart.
"""

from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import types

from engine.kernels.jit import kernel
from engine.kernels.regions import ADDRESS, BLOCK, OUTSIDE, RECORD_AT, RUBBISH, SIZE, TABLE, WHO, ZEROS
from engine.kernels.runner import BARRIER, LAYER_MARK, RECORD, SKIP, TILE_BARRIER, left_out, meet
from engine.kernels.simd import ld_i64, st_i64
from engine.kernels.step import ERROR, LAYER, N_ROWS, REPLICATE
from engine.kernels.sync import atomic_add, atomic_load, atomic_store, invoke_op
from engine.kernels.vec import I64, call, i64, make, void


def _raw(b: Any, p: Any) -> Any:
    return b.inttoptr(p, I64.as_pointer())


# Not through vec.py: the check must not check itself.
_load = make(i64, (i64,), lambda b, p: b.load(_raw(b, p)))
_store = make(void, (i64, i64), lambda b, p, v: b.store(v, _raw(b, p)))
_claim = make(i64, (i64, i64), lambda b, p, v: b.extract_value(
    b.cmpxchg(_raw(b, p), I64(0), v, "seq_cst", "seq_cst"), 0))  # fmt: skip
thread_self = make(i64, (), lambda b: call(b, "pthread_self", I64, []))


def _check(p, n, is_write):
    """The address to use for n bytes at p."""
    table = _load(BLOCK + TABLE)
    low, high = 0, _load(table)
    while low < high:
        mid = (low + high) // 2
        if _load(table + 8 + mid * 16) <= p:
            low = mid + 1
        else:
            high = mid
    if low > 0 and p + n <= _load(table + low * 16):
        return p
    if _claim(BLOCK + WHO, thread_self()) == 0:
        _store(BLOCK + ADDRESS, p)
        _store(BLOCK + SIZE, n)
    return BLOCK + (RUBBISH if is_write else ZEROS)


@cache
def install() -> Any:
    """Compile the check, half a second, and make its name known to the linker; before any checked kernel is linked."""
    compiled = numba.cfunc(types.int64(types.int64, types.int64, types.int64), nopython=True)(_check)
    llvm.add_symbol("colibri_check", compiled.address)
    return compiled


@kernel(4)
def replay_checked(tid, nth, job, sy):
    """As runner._replay; whoever meets a fault of its own names the op and has the step stop."""
    records, n, st, block = ld_i64(job), ld_i64(job + 8), ld_i64(job + 16), ld_i64(job + 56)
    many = ld_i64(st + N_ROWS) > REPLICATE
    i = 0
    while i < n:
        o = records + i * RECORD
        code = ld_i64(o)
        i += 1
        if code == BARRIER or (code == TILE_BARRIER and many):
            if meet(sy, nth, st) != 0:
                return
        elif code == LAYER_MARK:
            if tid == 0:
                atomic_add(st + LAYER, 1)
        elif code == SKIP:
            i += left_out(o)
        elif code != TILE_BARRIER:
            invoke_op(code, o, tid, nth, st)
            if atomic_load(block + WHO) == thread_self() and ld_i64(block + RECORD_AT) == 0:
                st_i64(block + RECORD_AT, o)
                atomic_store(st + ERROR, OUTSIDE)
    meet(sy, nth, st)
