"""What every op of a program costs: time, bytes, multiplications. Not here: taking the time (timed.py), tables.

Time is the mean over the threads, so the ops and the waiting in barriers add up to the time of the step.
"""

import ctypes
import re
from dataclasses import dataclass

import numpy as np

from engine.kernels.program import About, Buffer, Recorded
from engine.kernels.step import N_OUT, N_ROWS, POSITIONS


@dataclass(frozen=True)
class OpTime:
    """Sums over `n_steps` steps. `tensor` names the weights, or what a barrier stands behind; layer None: of no layer.

    `ns` is wall time; `n_bytes` and `n_macs` are what the op had to read and multiply, however often a cache helped.
    """

    op: str
    tensor: str
    layer: int | None
    n_steps: int
    ns: float
    n_bytes: int
    n_macs: int


class Timing:
    """Times of the steps of one program, on up to `threads` threads."""

    def __init__(self, program: Recorded, threads: int) -> None:
        self.program = program
        self._times = Buffer(threads * (program.n_ops + 1) * 8)
        self.address = self._times.address
        self._n_steps = self._n_threads = 0
        self._rows = {N_ROWS: 0, N_OUT: 0}
        self._past = {about.work.window: 0 for about in program.about}

    def count(self, words: np.ndarray, threads: int) -> None:
        """A step has gone through: its rows and positions, from the step block's words."""
        n = int(words[N_ROWS // 8])
        self._n_steps += 1
        self._n_threads = max(threads, self._n_threads)
        for which in self._rows:
            self._rows[which] += int(words[which // 8])
        at = int(words[POSITIONS // 8])
        seen = [position + 1 for position in (ctypes.c_int64 * n).from_address(at)] if at else []
        for window in self._past:
            self._past[window] += sum(min(one, window) if window else one for one in seen)

    def rows(self) -> list[OpTime]:
        """One row for each op in order of recording; the end of the step is the last barrier."""
        width = self.program.n_ops + 1
        times = self._times.view(np.int64).reshape(-1, width)[: max(1, self._n_threads)].mean(axis=0)
        found = [self._row(about, ns) for about, ns in zip(self.program.about, times, strict=False) if about.kind]
        last = OpTime("barrier", "end of the step", None, self._n_steps, float(times[-1]), 0, 0)
        return [*found, last]

    def _row(self, about: About, ns: float) -> OpTime:
        w, rows, past = about.work, self._rows[about.work.rows], self._past[about.work.window]
        n_bytes = w.n_bytes * self._n_steps + w.row_bytes * rows + w.past_bytes * past
        n_macs = w.row_macs * rows + w.past_macs * past
        return OpTime(about.kind, short(w.name), about.layer, self._n_steps, float(ns), n_bytes, n_macs)


def short(name: str) -> str:
    """A tensor's name without its layer and its suffix: blk.3.attn_q.weight is attn_q."""
    return re.sub(r"\bblk\.\d+\.|\.weight\b", "", name)
