"""Records a model's forward pass as a table of ops. Not here: who replays it (team.py, runner.py), what a model is.

A program is recorded once, at load (4 ms for 700 ops); everything that changes from step to step stands in the step
block. Addresses are plain integers and a wrong one is a segmentation fault, so whoever adds an op asserts the extents
of what it names through `Buffer`s and their sizes.
"""

from collections.abc import Sequence

import numpy as np

from engine.kernels.jit import Kernel
from engine.kernels.runner import BARRIER, LAYER_MARK, RECORD, TILE_BARRIER

Word = int | float


class Buffer:
    """`n_bytes` of zeroed memory on a 64-byte line, kept alive by this object; `address` is its first byte."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        self._memory = np.zeros(n_bytes + 64, np.uint8)
        self.skip = -self._memory.ctypes.data % 64
        self.address = self._memory.ctypes.data + self.skip

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
        self._ops: list[tuple[Kernel | int, tuple[Word | Kernel, ...], bool]] = []

    def add(self, op: Kernel, *words: "Word | Kernel", counter: bool = False) -> None:
        """One op with up to 15 words (14 with a counter, which is word 15); a Kernel stands for its address."""
        assert len(words) <= (14 if counter else 15), f"{op.name}: {len(words)} words"
        self._ops.append((op, words, counter))
        self.kernels += [op, *(w for w in words if isinstance(w, Kernel))]

    def barrier(self) -> None:
        """All threads meet here."""
        self._ops.append((BARRIER, (), False))

    def tile_barrier(self) -> None:
        """They meet when the step has more rows than each thread keeps copies of (step.REPLICATE)."""
        self._ops.append((TILE_BARRIER, (), False))

    def layer(self) -> None:
        """One layer more is done; the watchdog counts them."""
        self._ops.append((LAYER_MARK, (), False))

    def finish(self) -> "Recorded":
        return Recorded(self._ops)


class Recorded:
    """The table in memory: `records`, how many, and one counter line for each op that hands out work."""

    def __init__(self, ops: Sequence[tuple[Kernel | int, tuple[Word | Kernel, ...], bool]]) -> None:
        self.n_ops = len(ops)
        self.records = Buffer(max(1, len(ops)) * RECORD)
        self.n_counters = sum(counter for _, _, counter in ops)
        self.counters = Buffer(max(1, self.n_counters) * 64)
        table = self.records.view(np.int64).reshape(-1, RECORD // 8)
        used = 0
        for row, (code, words, counter) in zip(table, ops, strict=True):
            row[0] = code if isinstance(code, int) else code.address
            for i, word in enumerate(words, 1):
                if isinstance(word, float):
                    row[i : i + 1].view(np.float32)[0] = word
                else:
                    row[i] = word.address if isinstance(word, Kernel) else word
            if counter:
                row[15] = self.counters.address + used * 64
                used += 1
