"""What caches of experts would read on a recorded trace: our policy without a byte lost, and one that knows what comes.

Not here: recording (engine/weights/experts.py), running anything.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.weights.experts import HALF_LIFE, MOST_GAIN

Key = tuple[int, int]  # layer, expert


def steps(uses: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Uses (layer, expert, rows) by step: inside one they ascend."""
    order = uses[:, 0] * (1 << 20) + uses[:, 1]
    yield from np.split(uses, np.flatnonzero(np.diff(order) <= 0) + 1)


class Ideal:
    """`n_bytes` for experts of `sizes` by layer, forgetting those with the least heat as fetch.py does, to the byte: no
    slots, no blocks, no pools. `n_missed` and `missed_bytes` count what it would have read."""

    def __init__(
        self, sizes: Sequence[int], n_experts: int, n_bytes: int, n_used: int, half_life: float = HALF_LIFE
    ) -> None:
        self.sizes, self.n_bytes, self.n_used, self.half_life = sizes, n_bytes, n_used, half_life
        self.heat = np.zeros((len(sizes), n_experts), np.float32)
        self.held: list[Key] = []
        self.gain, self.used = 1.0, 0
        self.n_missed = self.missed_bytes = 0

    def step(self, uses: NDArray[np.int64]) -> None:
        """A step's uses, layer after layer."""
        first = uses[uses[:, 0] == uses[0, 0]]
        if self.gain > MOST_GAIN:
            self.heat /= np.float32(self.gain)
            self.gain = 1.0
        self.gain *= 2.0 ** (int(first[:, 2].sum()) // self.n_used / self.half_life)
        for layer in np.unique(uses[:, 0]):
            self._layer(int(layer), uses[uses[:, 0] == layer])

    def _layer(self, layer: int, uses: NDArray[np.int64]) -> None:
        for _, expert, rows in uses:
            self.heat[layer, expert] += np.float32(self.gain) * np.float32(rows)
        needed = {(layer, int(expert)) for expert in uses[:, 1]}
        for key in sorted(needed - set(self.held)):
            self.n_missed += 1
            self.missed_bytes += self.sizes[layer]
            self._make_room(key, needed)

    def _make_room(self, key: Key, needed: set[Key]) -> None:
        at = len(self.held)
        while self.used + self.sizes[key[0]] > self.n_bytes:
            old = min((k for k in self.held if k not in needed), key=lambda k: self.heat[k], default=None)
            if old is None:  # more than there is room for: it passes through
                return
            at = self.held.index(old)
            self.held.remove(old)
            self.used -= self.sizes[old[0]]
        self.held.insert(at, key)
        self.used += self.sizes[key[0]]


def foreseen(uses: NDArray[np.int64], sizes: Sequence[int], n_bytes: int) -> int:
    """Bytes that a cache would read which forgets what comes again last (Belady 1966, doi:10.1147/sj.52.0078)."""
    keys = [(int(layer), int(expert)) for layer, expert, _ in uses]
    following = [len(keys)] * len(keys)
    seen: dict[Key, int] = {}
    for i in range(len(keys) - 1, -1, -1):
        following[i] = seen.get(keys[i], len(keys))
        seen[keys[i]] = i
    held: dict[Key, int] = {}
    used = missed = 0
    for key, comes in zip(keys, following, strict=True):
        if key not in held:
            missed += sizes[key[0]]
            while held and used + sizes[key[0]] > n_bytes:
                old = max(held, key=lambda k: held[k])
                used -= sizes[old[0]]
                del held[old]
            used += sizes[key[0]]
        held[key] = comes
    return missed
