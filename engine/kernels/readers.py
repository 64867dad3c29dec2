"""The threads that carry out the ring's requests, and the ring as Python sees it. Not here: the loops (ring.py).

    readers.post(request)        the request (ring.py) is read by one of them
    readers.nudge()              after a cancel: whoever waits for a read looks up
    readers.drain()              after a step that was left: nothing is on its way any more
"""

import os
import threading

import numpy as np

from engine.kernels.disk import SHORT
from engine.kernels.program import Buffer
from engine.kernels.ring import (
    BUSY_NS, BYTES, FAULT, N_READS, RING_BYTES, WAIT_NS, await_all, drain, nudge, post_one, read_on, release, send_home,
    wait_read,
)  # fmt: skip

N_READERS = 4
"""One leaves a third of a fast disk unused, more than four bring nothing (measured: 0.96, 1.13, 1.36, 1.25, 1.40 GB/s
with 1, 2, 4, 8 and 16). Python threads that read reach 0.65 to 1.07 tokens/s where these reach 3.4, as soon as any
other Python thread runs: the GIL decides."""
KERNELS = (read_on, post_one, nudge, drain, await_all, send_home, wait_read, release)
PATIENCE_S = 5.0


class Readers:
    """`n` threads that read; `ring` is the address ops name."""

    def __init__(self, n: int = N_READERS) -> None:
        self._block = Buffer(RING_BYTES)
        self.ring = self._block.address
        self._words = self._block.view(np.int64)
        self._threads = [threading.Thread(target=read_on, args=(self.ring,), daemon=True) for _ in range(n)]
        for thread in self._threads:
            thread.start()

    def post(self, request: int) -> None:
        """Have it read; while no step runs."""
        post_one(self.ring, request)

    def nudge(self) -> None:
        """Wake whoever waits, from any thread."""
        nudge(self.ring)

    def drain(self) -> None:
        """Forget what nobody reads yet, wait for what is being read; while no step runs. A disk that never answers
        holds this up for ever, as its reader cannot be called back and would write into memory later."""
        drain(self.ring)

    def finish(self) -> None:
        """Wait for all that was posted; while no step runs."""
        await_all(self.ring)

    def take_fault(self) -> str:
        """What the first failed read met, in words, and forget it; empty if none failed."""
        code, at = int(self._words[FAULT // 8]), int(self._words[FAULT // 8 + 1])
        self._words[FAULT // 8 : FAULT // 8 + 2] = 0
        if code == 0:
            return ""
        why = "the file ends too early" if code == SHORT else os.strerror(-code).lower()
        return f"{why}, reading from byte {at:,} on"

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """Those that read."""
        return tuple(self._threads)

    @property
    def n_bytes(self) -> int:
        """Bytes read so far."""
        return int(self._words[BYTES // 8])

    @property
    def n_reads(self) -> int:
        """Requests carried out so far."""
        return int(self._words[N_READS // 8])

    @property
    def busy_ns(self) -> int:
        """Time spent in reads so far, of all readers together."""
        return int(self._words[BUSY_NS // 8])

    @property
    def wait_ns(self) -> int:
        """Time that the first thread of the team has waited for reads so far."""
        return int(self._words[WAIT_NS // 8])

    def stop(self) -> bool:
        """End the threads; False when one still sits in a read: what it reads into must then stay."""
        send_home(self.ring)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        return not any(thread.is_alive() for thread in self._threads)
