"""The threads that replay programs, started once and kept. Not here: how many there should be, or on which CPUs.

The caller is thread 0. The others wait inside compiled code with the GIL released: `pause`, then a futex.
"""

import os
import threading
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from engine.kernels.jit import outside
from engine.kernels.program import NOWHERE, Buffer, Recorded
from engine.kernels.regions import BLOCK, CHECKED, take_fault
from engine.kernels.runner import CROWDED_SPIN_NS, JOB, QUIT, RECORD, SPIN, SPIN_NS, SYNC_BYTES, run_job, serve
from engine.kernels.step import CANCEL, ERROR, N_WORDS
from engine.kernels.timed import replay_timed
from engine.kernels.timing import OpTime, Timing

KERNELS = (run_job, serve)


class Team:
    """`size` threads (the caller's included); `cpus[i]` pins thread i, empty leaves them to the kernel."""

    def __init__(self, size: int, cpus: Sequence[int] = ()) -> None:
        assert 1 <= size < 256, size
        self.size, self._cpus, self._pinned = size, tuple(cpus), False
        self._sync, self._job = Buffer(SYNC_BYTES), Buffer(64)
        self._n_cpus = len(os.sched_getaffinity(0))
        self._timings: dict[int, Timing] = {}
        self.is_timed = False
        self.step = Buffer(N_WORDS * 8)
        self.words = self.step.view(np.int64)  # the step block, by word (offset / 8)
        self._threads = [threading.Thread(target=self._work, args=(tid,), daemon=True) for tid in range(1, size)]
        for thread in self._threads:
            thread.start()

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """Members 1 and up; the caller of `run` is member 0."""
        return tuple(self._threads)

    def _pin(self, tid: int) -> None:
        if tid < len(self._cpus):
            os.sched_setaffinity(0, {self._cpus[tid]})

    def _work(self, tid: int) -> None:
        self._pin(tid)
        serve(tid, self._job.address, self._sync.address)

    def run(self, program: Recorded, threads: int) -> bool:
        """Replay once with the first `threads` members; True when it went through, False when it was left early."""
        if not self._pinned and self._cpus:
            self._found = threading.get_native_id(), os.sched_getaffinity(0)
            self._pin(0)
            self._pinned = True
        n = min(threads, self.size)
        job = self._job.view(np.int64)
        self._sync.view(np.int64)[SPIN // 8] = SPIN_NS if n <= self._n_cpus else CROWDED_SPIN_NS
        timing = self._timing(program)
        job[:8] = (
            program.records.address, program.n_ops, self.step.address, program.counters.address, program.n_counters, n,
            *self._other_replay(timing),
        )  # fmt: skip
        run_job(self._job.address, self._sync.address)
        if self.words[CANCEL // 8] or self.words[ERROR // 8]:
            return False
        if timing:
            timing.count(self.words, n)
        return True

    @staticmethod
    def _other_replay(timing: Timing | None) -> tuple[int, int]:
        """The address of a replay that does more than run, and what it writes into; zeros for none."""
        if timing:
            return replay_timed.address, timing.address
        if CHECKED:
            from engine.kernels.checked import replay_checked

            return replay_checked.address, BLOCK
        return 0, 0

    def fault(self, program: Recorded) -> str:
        """What the checked build caught in the last replay, as a sentence; empty if nothing."""
        fault = take_fault()
        if fault is None:
            return ""
        i = (fault.record - program.records.address) // RECORD
        about = program.about[i] if 0 <= i < program.n_ops else NOWHERE
        where = "" if about.layer is None else f" of layer {about.layer}"
        name = f" ({about.work.name})" if about.work.name else ""
        return outside(f"the op {about.kind}{where}{name}", fault)

    def _timing(self, program: Recorded) -> Timing | None:
        if not self.is_timed:
            return None
        if id(program) not in self._timings:
            self._timings[id(program)] = Timing(program, self.size)
        return self._timings[id(program)]

    def start_timing(self) -> None:
        """From the next replay on, take the time of every op, from zero."""
        _ = replay_timed.address
        self._timings, self.is_timed = {}, True

    def stop_timing(self) -> list[OpTime]:
        """What the replays since `start_timing` took, op by op; they are not timed any more."""
        timings, self._timings, self.is_timed = self._timings, {}, False
        return [row for timing in timings.values() for row in timing.rows()]

    def cancel(self) -> None:
        """Make the running replay, or the next, stop at its next barrier; safe from any thread."""
        self.words[CANCEL // 8] = 1

    def stop(self) -> None:
        """End the threads; the caller of `run` may use the CPUs again that it came with."""
        if self._pinned:
            with suppress(OSError):  # it has ended
                os.sched_setaffinity(*self._found)
        sync = self._sync.view(np.int64)
        sync[QUIT // 8] = 1
        sync[JOB // 8] += 256
        _wake(self._sync.address + JOB)
        for thread in self._threads:
            thread.join()


def _wake(address: int) -> None:
    """Wake whoever sleeps on the futex at `address`."""
    import ctypes

    from engine.kernels.sync import SYS_FUTEX, WAKE_PRIVATE

    ctypes.CDLL(None).syscall(SYS_FUTEX, ctypes.c_void_p(address), WAKE_PRIVATE, 1 << 30, None)
