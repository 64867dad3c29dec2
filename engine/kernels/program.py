"""Records a model's forward pass as a table of ops. Not here: who replays it (team.py, runner.py), what a model is.

A program is recorded once, at load (4 ms for 700 ops); everything that changes from step to step stands in the step
block. Addresses are plain integers and a wrong one is a segmentation fault, so whoever adds an op asserts the extents
of what it names through `Buffer`s and their sizes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from engine.kernels.jit import Kernel
from engine.kernels.regions import live
from engine.kernels.runner import BARRIER, LAYER_MARK, RECORD, SKIP, TILE_BARRIER
from engine.kernels.step import N_ROWS

Word = int | float


@dataclass(frozen=True)
class Work:
    """What an op reads from memory and multiplies in a step, for who measures (timing.py); nothing runs by it.

    `n_bytes` once a step (weights); `row_*` for each row of the step word `rows`; `past_*` for each position that a row
    looks back on, itself included, with a `window` (0: none) at most so many.
    """

    name: str = ""
    n_bytes: int = 0
    row_bytes: int = 0
    row_macs: int = 0
    past_bytes: int = 0
    past_macs: int = 0
    window: int = 0
    rows: int = N_ROWS


@dataclass(frozen=True)
class About:
    """An op of a program as people name it; `layer` None lies before the first layer or after the last one."""

    kind: str
    layer: int | None
    work: Work


NO_WORK = Work()
NOWHERE = About("", None, NO_WORK)


@dataclass(frozen=True)
class Op:
    """One op as it was recorded: a kernel or a code of runner.py, its words, whether it hands out work."""

    code: Kernel | int
    words: tuple["Word | Kernel", ...] = ()
    counter: bool = False
    about: About = NOWHERE


class Buffer:
    """`n_bytes` of zeroed memory on a 64-byte line, kept alive by this object; `address` is its first byte."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        self._memory = np.zeros(n_bytes + 64, np.uint8)
        self.skip = -self._memory.ctypes.data % 64
        self.address = self._memory.ctypes.data + self.skip
        live(self, self.address, n_bytes)

    def view(self, dtype: type, count: int = -1, offset: int = 0) -> np.ndarray:
        """An array over these bytes."""
        size = np.dtype(dtype).itemsize
        end = self.n_bytes if count < 0 else offset + count * size
        assert 0 <= offset <= end <= self.n_bytes, (offset, end, self.n_bytes)
        end -= (end - offset) % size
        return self._memory[self.skip + offset : self.skip + end].view(dtype)


class Program:
    """Ops in order of recording; `finish` binds their addresses (which compiles what is missing)."""

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []
        self._ops: list[Op] = []
        self._layer = 0

    def add(self, op: Kernel, *words: "Word | Kernel", counter: bool = False, work: Work = NO_WORK) -> None:
        """One op with up to 15 words (14 with a counter, which is word 15); a Kernel stands for its address."""
        assert len(words) <= (14 if counter else 15), f"{op.name}: {len(words)} words"
        self._ops.append(Op(op, words, counter, About(op.name.rsplit(".", 1)[-1], self._layer, work)))
        self.kernels += [op, *(w for w in words if isinstance(w, Kernel))]

    def barrier(self) -> None:
        """All threads meet here."""
        self._meet(BARRIER)

    def tile_barrier(self) -> None:
        """They meet when the step has more rows than each thread keeps copies of (step.REPLICATE)."""
        self._meet(TILE_BARRIER)

    @contextmanager
    def only_above(self, address: int, number: int) -> Iterator[None]:
        """The ops recorded inside run when the word at `address` is greater than `number` as the threads come there: an
        op before the last barrier may set it, the next one that does must lie behind a later barrier."""
        i = len(self._ops)
        self._ops.append(Op(SKIP))
        yield
        self._ops[i] = Op(SKIP, (address, number, len(self._ops) - i - 1))

    def _meet(self, code: int) -> None:
        before = next((op.about for op in reversed(self._ops) if isinstance(op.code, Kernel)), NOWHERE)
        what = Work(f"after {before.kind} {before.work.name}".rstrip() if before.kind else "at the start")
        self._ops.append(Op(code, about=About("barrier", before.layer, what)))

    def layer(self) -> None:
        """One layer more is done; the watchdog counts them."""
        self._ops.append(Op(LAYER_MARK))
        self._layer += 1

    def finish(self) -> "Recorded":
        return Recorded(self._ops, self._layer)


class Recorded:
    """The table in memory: `records`, how many, and one counter line for each op that hands out work; `about` by op."""

    def __init__(self, ops: Sequence[Op], n_layers: int = 0) -> None:
        self.n_ops = len(ops)
        self.about = [replace(op.about, layer=None) if op.about.layer == n_layers else op.about for op in ops]
        self.records = Buffer(max(1, len(ops)) * RECORD)
        self.n_counters = sum(op.counter for op in ops)
        self.counters = Buffer(max(1, self.n_counters) * 64)
        table = self.records.view(np.int64).reshape(-1, RECORD // 8)
        used = 0
        for row, op in zip(table, ops, strict=True):
            row[0] = op.code if isinstance(op.code, int) else op.code.address
            for i, word in enumerate(op.words, 1):
                if isinstance(word, float):
                    row[i : i + 1].view(np.float32)[0] = word
                else:
                    row[i] = word.address if isinstance(word, Kernel) else word
            if op.counter:
                row[15] = self.counters.address + used * 64
                used += 1
