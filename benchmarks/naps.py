"""Random sleeps in the threads of an engine while they compute, to shake the order in which they take their work.

A thread of this file sends signals whose handler, compiled code, sleeps 20 us to 2.5 ms: so a thread stands still at
any instruction, between two chunks of work, inside one, before a barrier, while the others go on. It costs nothing when
it is not used, and the engine has no word of it. Not here: what must not change by that (identity.py).
"""

import ctypes
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from engine.generate import Engine
from engine.kernels.jit import kernel
from engine.kernels.simd import I32, call, i64, make, void

FIRST = signal.SIGRTMIN + 1
LENGTHS = 8  # signals in use: FIRST + n sleeps 20 us * 2**n
EVERY_S = 0.0015  # mean time between two naps of the whole team


def _usleep(b, us):  # type: ignore[no-untyped-def]
    call(b, "usleep", I32, [b.trunc(us, I32)])


usleep = make(void, (i64,), _usleep)


@kernel(1)
def nap(number):
    usleep(20 << ((number - 35) & 7))


def take_naps_on_signals() -> None:
    """Install the handler; calls that it interrupts are started again by the system, or loop (the futex waits)."""
    assert FIRST == 35, "the handler has glibc's first free signal in it"
    libc = ctypes.CDLL(None, use_errno=True)
    libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    for n in range(LENGTHS):
        libc.signal(FIRST + n, nap.address)


class Naps:
    """How many were sent."""

    sent = 0


@contextmanager
def naps(engine: Engine, seed: int, every_s: float = EVERY_S) -> Iterator[Naps]:
    """Within, the engine's threads (the caller's is one of them) sleep now and then."""
    take_naps_on_signals()
    team = [threading.get_ident(), *(t.ident for t in engine.threads if t.ident is not None)]
    count, is_over, rng = Naps(), threading.Event(), random.Random(seed)

    def send() -> None:
        while not is_over.is_set():
            time.sleep(rng.uniform(0, 2 * every_s))
            signal.pthread_kill(rng.choice(team), FIRST + min(int(rng.expovariate(0.5)), LENGTHS - 1))
            count.sent += 1

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        yield count
    finally:
        is_over.set()
        sender.join()
