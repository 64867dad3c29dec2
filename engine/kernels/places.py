"""Where each expert of each layer lies: a table in memory that ops look up as they come to an expert. Not here: who
puts experts there (a placed file fills it once, a cache of experts changes it between two barriers, fetch.py).

    table   [layers][experts] of PLACE bytes: i64 address of its gate, of its up, of its down matrix, of its reads
    reads   three requests (ring.py) for gate, up and down, then the ring's address, and the bytes between the requests
            that tell of them: 0 where one brings all three; no reads (0) for an expert that is there

An address names the first byte of eight rows after eight rows, in the order (panels or file rows) that the kernels
recorded beside the table read.
"""

import numpy as np
from numpy.typing import NDArray

from engine.kernels.jit import inner
from engine.kernels.program import Buffer
from engine.kernels.ring import REQUEST, come
from engine.kernels.simd import ld_i64

PLACE = 32
GATE, UP, DOWN, READS = 0, 8, 16, 24
RING, APART = 3 * REQUEST, 3 * REQUEST + 8  # in the reads


@inner
def place(layer, expert, part):
    """The address of `part` (GATE, UP or DOWN) of an expert, `layer` the layer's first place."""
    return ld_i64(layer + expert * PLACE + part)


@inner
def has_come(layer, expert, part, tid, st):
    """Waits for `part` to be read; False when the step is being left instead, or has to be."""
    reads = place(layer, expert, READS)
    if reads == 0:
        return True
    return come(ld_i64(reads + RING), reads + part // 8 * ld_i64(reads + APART), tid, st) > 0


class Places:
    """The table; `words` is int64 (layers, experts, 4)."""

    def __init__(self, n_layers: int, n_experts: int) -> None:
        self._buffer = Buffer(n_layers * n_experts * PLACE)
        self.n_experts = n_experts
        self.words = self._buffer.view(np.int64).reshape(n_layers, n_experts, PLACE // 8)

    def layer(self, i: int) -> int:
        """The address of layer i's first place."""
        assert 0 <= i < len(self.words), i
        return self._buffer.address + i * self.n_experts * PLACE

    def fill(self, i: int, part: int, address: int, expert_bytes: int) -> None:
        """Layer i's experts lie one after the other from `address` on."""
        self.scatter(i, part, address + np.arange(self.n_experts) * expert_bytes)

    def scatter(self, i: int, part: int, addresses: NDArray[np.int64]) -> None:
        """Each of layer i's experts lies where it lies."""
        self.words[i, :, part // 8] = addresses
