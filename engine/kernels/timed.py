"""The replay that takes the time of every op. Not here: what the times mean (timing.py), the usual replay (runner.py).

    times   i64 [threads][ops + 1]: nanoseconds in the op, or waiting in the barrier; the last is the end of the step

A clock costs 25 ns, so a step of 700 ops is longer by about 20 us.
"""

from engine.kernels.jit import kernel
from engine.kernels.runner import BARRIER, LAYER_MARK, RECORD, SKIP, TILE_BARRIER, left_out, meet
from engine.kernels.simd import ld_i64, st_i64
from engine.kernels.step import LAYER, N_ROWS, REPLICATE
from engine.kernels.sync import atomic_add, clock_ns, invoke_op


@kernel(4)
def replay_timed(tid, nth, job, sy):
    records, n, st = ld_i64(job), ld_i64(job + 8), ld_i64(job + 16)
    times = ld_i64(job + 56) + tid * (n + 1) * 8
    many = ld_i64(st + N_ROWS) > REPLICATE
    before = clock_ns()
    i = 0
    while i < n:
        o, at = records + i * RECORD, times + i * 8
        code = ld_i64(o)
        stop = 0
        i += 1
        if code == BARRIER or (code == TILE_BARRIER and many):
            stop = meet(sy, nth, st)
        elif code == LAYER_MARK:
            if tid == 0:
                atomic_add(st + LAYER, 1)
        elif code == SKIP:
            i += left_out(o)
        elif code != TILE_BARRIER:
            invoke_op(code, o, tid, nth, st)
        now = clock_ns()
        st_i64(at, ld_i64(at) + now - before)
        before = now
        if stop != 0:
            return
    meet(sy, nth, st)
    st_i64(times + n * 8, ld_i64(times + n * 8) + clock_ns() - before)
