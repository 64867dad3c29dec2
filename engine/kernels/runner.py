"""Replays a recorded program on a team of threads that meet at barriers. Not here: the recording (program.py).

    job block    0 records   8 how many   16 step block   24 counters   32 how many   40 threads of this job
                 48 another replay to use (timed.py), or 0   56 what that one writes into
    sync block   lines of 64 bytes: ARRIVED, GENERATION, JOB (number * 256 + threads), QUIT, SLEEPERS, SPIN

The last thread to reach a barrier reads the cancel and error words and publishes go or stop in the generation's low
bit, so that all leave at the same barrier. Waiting is some microseconds of `pause`, then a futex: spinning through a
disk wait or on a shared core starves the others. There is no sched_yield: each one gives a whole time slice away where
another process wants the core, and decoding fell to 0.14 of its quiet speed with one on each core, instead of 0.55.
A barrier costs 95 ns between two Zen 3 cores.
"""

from engine.kernels.jit import inner, kernel
from engine.kernels.simd import ld_i64, st_i64
from engine.kernels.step import CANCEL, ERROR, LAYER, N_ROWS, REPLICATE
from engine.kernels.sync import (
    SYS_FUTEX, WAIT_PRIVATE, WAKE_PRIVATE, atomic_add, atomic_load, atomic_store, clock_ns, futex, invoke_op, pause,
)  # fmt: skip

RECORD = 128  # bytes of an op record: its address and fifteen words
BARRIER, TILE_BARRIER, LAYER_MARK = 1, 2, 3  # in place of an address; TILE_BARRIER counts above REPLICATE rows only
SKIP = 4  # record: 1 address of a word   2 number   3 ops to leave out unless the word is greater
ARRIVED, GENERATION, JOB, QUIT, SLEEPERS, SPIN = 0, 64, 128, 192, 256, 320
SYNC_BYTES = 512
PAUSES = 64  # between two looks at the clock: one takes 15 ns on Zen, 45 on Intel, next to nothing on ARM
SPIN_NS = 50_000  # in a barrier; a wake-up costs as much
# With more threads than CPUs, where the partner may want this one: four threads on two cores decode at 140 tokens/s
# with 2 us, at 62 with 50. Shrinking the 50 by what the last waits took costs a prefill more than it saves elsewhere.
CROWDED_SPIN_NS = 2_000
IDLE_NS = 200_000  # between steps


@inner
def _wait(sy, word, old, spin_ns):
    """Until *word differs from old."""
    n, end = 0, 0
    while atomic_load(sy + word) == old:
        n += 1
        if n % PAUSES != 0:
            pause()
        elif end == 0:
            end = clock_ns() + spin_ns
        elif clock_ns() > end:
            atomic_add(sy + SLEEPERS, 1)
            futex(SYS_FUTEX, sy + word, WAIT_PRIVATE, old & 0xFFFFFFFF, 0)
            atomic_add(sy + SLEEPERS, -1)


@inner
def _publish(sy, word, value):
    atomic_store(sy + word, value)
    if atomic_add(sy + SLEEPERS, 0) > 0:
        futex(SYS_FUTEX, sy + word, WAKE_PRIVATE, 1 << 30, 0)


@inner
def _should_stop(st):
    return 1 if atomic_load(st + CANCEL) != 0 or atomic_load(st + ERROR) != 0 else 0


@inner
def meet(sy, nth, st):
    """The barrier; 1 when the step must be left here, by all threads alike."""
    if nth == 1:
        return _should_stop(st)
    old = atomic_load(sy + GENERATION)
    if atomic_add(sy + ARRIVED, 1) == nth - 1:
        stop = _should_stop(st)
        atomic_store(sy + ARRIVED, 0)
        _publish(sy, GENERATION, (old // 2 + 1) * 2 + stop)
        return stop
    _wait(sy, GENERATION, old, ld_i64(sy + SPIN))
    return atomic_load(sy + GENERATION) & 1


@inner
def left_out(o):
    """How many ops a SKIP leaves out; all threads must find the same."""
    return 0 if ld_i64(ld_i64(o + 8)) > ld_i64(o + 16) else ld_i64(o + 24)


@inner
def _replay(tid, nth, job, sy):
    records, n, st = ld_i64(job), ld_i64(job + 8), ld_i64(job + 16)
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
    meet(sy, nth, st)


@inner
def _go(tid, nth, job, sy):
    other = ld_i64(job + 48)
    if other != 0:
        invoke_op(other, tid, nth, job, sy)
    else:
        _replay(tid, nth, job, sy)


@kernel(2)
def run_job(job, sy):
    """Thread 0: clear the counters, wake the team, do its own share; returns when all are through."""
    counters = ld_i64(job + 24)
    for i in range(ld_i64(job + 32)):
        st_i64(counters + i * 64, 0)
    nth = ld_i64(job + 40)
    if nth > 1:
        _publish(sy, JOB, (atomic_load(sy + JOB) // 256 + 1) * 256 + nth)
    _go(0, nth, job, sy)


@kernel(3)
def serve(tid, job, sy):
    """Threads 1..: one job after the other until told to quit."""
    seen = 0
    while True:
        _wait(sy, JOB, seen, IDLE_NS)
        seen = atomic_load(sy + JOB)
        if atomic_load(sy + QUIT) != 0:
            return
        nth = seen & 255  # from the word itself: the job block may already describe the next job
        if tid < nth:
            _go(tid, nth, job, sy)
