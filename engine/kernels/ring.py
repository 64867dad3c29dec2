"""Reads that threads of their own carry out, and the ops that wait for them. Not here: those threads (readers.py), what
is read when (weights/stream.py).

    request   0 state: 0 on its way, 1 read, below 0 -errno or SHORT   8 threads that are done with it   16 fd
              24 offset   32 length   40 destination   48 fewest bytes that must come   56 1: give its cached pages back
    ring      lines of 64 bytes: PUBLISHED, TAKEN, FINISHED (requests so far), IDLE (readers that sleep), NEWS (rises
              with each end of a read), WAITERS (who sleep on it), QUIT, FAULT (first failure: code, offset), COUNTS
              (bytes read, ns of reading, ns that thread 0 waited, reads); from ENTRIES on CAPACITY requests' addresses

A reader claims a request *after* it was published: with tickets drawn before, a wake-up meets the wrong sleeper and is
lost (reproduced by the prototype). Posts come one after the other, never two at once, and at most CAPACITY are on their
way. A wait looks at the step's cancel and error words; who sets one wakes the waiters with `nudge`.
"""

from engine.kernels.disk import drop_at, read_at
from engine.kernels.jit import inner, kernel, op
from engine.kernels.simd import ld_i64, st_i64
from engine.kernels.step import CANCEL, ERROR
from engine.kernels.sync import (
    SYS_FUTEX, WAIT_PRIVATE, WAKE_PRIVATE, atomic_add, atomic_load, atomic_store, atomic_swap, clock_ns, futex, pause,
)  # fmt: skip

STATE, DONE, FD, OFFSET, LENGTH, TO, NEEDED, DROP = range(0, 64, 8)
REQUEST = 64  # bytes
PUBLISHED, TAKEN, FINISHED, IDLE, NEWS, WAITERS, QUIT, FAULT, COUNTS, ENTRIES = range(0, 640, 64)
CAPACITY = 4096
RING_BYTES = ENTRIES + CAPACITY * 8
BYTES, BUSY_NS, WAIT_NS, N_READS = COUNTS, COUNTS + 8, COUNTS + 16, COUNTS + 24
UNREADABLE = 3  # in the step's ERROR word: the file did not give what was needed
SPIN_NS = 20_000  # before a waiter sleeps: a wake-up costs 48 us, a read of 4 MB some ms, and readers want the core
PAUSES = 64
EVERYBODY = 1 << 30


@inner
def post(ring, request):
    """Have a request carried out; the caller sees to it that nobody else posts meanwhile."""
    n = atomic_load(ring + PUBLISHED)
    st_i64(ring + ENTRIES + n % CAPACITY * 8, request)
    atomic_store(ring + PUBLISHED, n + 1)
    if atomic_add(ring + IDLE, 0) > 0:
        futex(SYS_FUTEX, ring + PUBLISHED, WAKE_PRIVATE, 1, 0)


@inner
def wake_waiters(ring):
    atomic_add(ring + NEWS, 1)
    if atomic_add(ring + WAITERS, 0) > 0:
        futex(SYS_FUTEX, ring + NEWS, WAKE_PRIVATE, EVERYBODY, 0)


@inner
def _sleep(ring, news):
    """Until NEWS is another number than `news`, or by mistake earlier."""
    atomic_add(ring + WAITERS, 1)
    futex(SYS_FUTEX, ring + NEWS, WAIT_PRIVATE, news & 0xFFFFFFFF, 0)
    atomic_add(ring + WAITERS, -1)


@inner
def note_fault(ring, code, offset):
    """Remember the first failure."""
    if atomic_swap(ring + FAULT, 0, code) == 0:
        atomic_store(ring + FAULT + 8, offset)


@inner
def fail(ring, st):
    """End the step: everybody leaves at the next barrier, whoever sleeps before it is woken."""
    atomic_store(st + ERROR, UNREADABLE)
    wake_waiters(ring)


@inner
def _claim(ring):
    """The next request, 0 when it is time to go."""
    while True:
        published, taken = atomic_load(ring + PUBLISHED), atomic_load(ring + TAKEN)
        if atomic_load(ring + QUIT) != 0:
            return 0
        if taken < published:
            if atomic_swap(ring + TAKEN, taken, taken + 1) == taken:
                return ld_i64(ring + ENTRIES + taken % CAPACITY * 8)
        else:
            atomic_add(ring + IDLE, 1)
            futex(SYS_FUTEX, ring + PUBLISHED, WAIT_PRIVATE, published & 0xFFFFFFFF, 0)
            atomic_add(ring + IDLE, -1)


@kernel(1)
def read_on(ring):
    """A reader's life: carry out requests until QUIT."""
    while True:
        r = _claim(ring)
        if r == 0:
            return
        begin = clock_ns()
        fd, offset, length = ld_i64(r + FD), ld_i64(r + OFFSET), ld_i64(r + LENGTH)
        code = read_at(fd, ld_i64(r + TO), length, offset, ld_i64(r + NEEDED))
        if ld_i64(r + DROP) != 0:
            drop_at(fd, offset, length)
        if code != 0:
            note_fault(ring, code, offset)
        atomic_add(ring + BYTES, length)
        atomic_add(ring + N_READS, 1)
        atomic_add(ring + BUSY_NS, clock_ns() - begin)
        atomic_store(r + STATE, 1 if code == 0 else code)
        atomic_add(ring + FINISHED, 1)
        wake_waiters(ring)


@inner
def _is_left(st):
    return atomic_load(st + CANCEL) != 0 or atomic_load(st + ERROR) != 0


@inner
def until_read(ring, request, st):
    """The request's state once it is not 0; 0 when the step is being left."""
    n, end = 0, 0
    while True:
        news = atomic_load(ring + NEWS)
        state = atomic_load(request + STATE)
        if state != 0:
            return state
        if _is_left(st):
            return 0
        n += 1
        if n % PAUSES != 0:
            pause()
        elif end == 0:
            end = clock_ns() + SPIN_NS
        elif clock_ns() > end:
            _sleep(ring, news)


@inner
def come(ring, request, tid, st):
    """Waits until a request is read and returns its state: 0 when the step is being left, below 0 when it has to be."""
    state = atomic_load(request + STATE)
    if state == 0:
        begin = clock_ns()
        state = until_read(ring, request, st)
        if tid == 0:
            atomic_add(ring + WAIT_NS, clock_ns() - begin)
    if state < 0:
        fail(ring, st)
    return state


@op
def wait_read(o, tid, nth, st):
    """Record: 1 ring   2 request.   Until it is read; a failure ends the step."""
    come(ld_i64(o + 8), ld_i64(o + 16), tid, st)


@op
def release(o, tid, nth, st):
    """Record: 1 ring   2 request   3 the request that takes its place.   The last thread that is done posts it.

    Each thread releases in the order of the program, so the last ones do it one after the other, too. A step that is
    left releases nothing more: whoever left it begins anew (readers.py).
    """
    ring, request, follower = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24)
    if _is_left(st) or follower == request:
        return
    if atomic_add(request + DONE, 1) == nth - 1:
        atomic_store(request + DONE, 0)
        atomic_store(request + STATE, 0)
        post(ring, follower)


@kernel(2)
def post_one(ring, request):
    """From Python, while nobody else posts."""
    post(ring, request)


@kernel(1)
def nudge(ring):
    """Have those that wait look at the cancel and error words."""
    wake_waiters(ring)


@kernel(1)
def send_home(ring):
    """Readers end once they have read what they are at."""
    atomic_store(ring + QUIT, 1)
    atomic_add(ring + PUBLISHED, 1)
    futex(SYS_FUTEX, ring + PUBLISHED, WAKE_PRIVATE, EVERYBODY, 0)


@inner
def _until_all(ring):
    while True:
        news = atomic_load(ring + NEWS)
        if atomic_load(ring + FINISHED) == atomic_load(ring + PUBLISHED):
            return
        _sleep(ring, news)


@kernel(1)
def drain(ring):
    """Take back what no reader has begun and wait for the rest, while nobody posts."""
    while True:
        published, taken = atomic_load(ring + PUBLISHED), atomic_load(ring + TAKEN)
        if taken == published:
            break
        if atomic_swap(ring + TAKEN, taken, taken + 1) == taken:
            atomic_add(ring + FINISHED, 1)
    _until_all(ring)


@kernel(1)
def await_all(ring):
    """Until all that was posted is read, while nobody posts."""
    _until_all(ring)
