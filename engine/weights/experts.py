"""The cache of experts of a model whose experts do not fit: slots in anonymous memory, one budget over all layers.

    ExpertCache(origin, readers, places, layers, base, n_bytes)    before the program is recorded
    cache.begin(n_rows)    before a step        cache.end(is_whole, is_sound)    after it
    cache.heat             float32 (layers, experts), what each is used; may be set, and kept

An expert takes a slot with its gate, up and down, in file rows; where a file has the three one behind the other (a copy
of relayout) one read brings them, else three. Where layers differ in size (a mix of types) there are
pools of slots for each size, so that none is wasted, with the same number of slots for each layer on average; a small
cache is one pool. Not here: who gets a slot in a step (kernels/fetch.py), how large the cache is (planner).
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelUnreadable
from engine.kernels import fetch
from engine.kernels.disk import BLOCK
from engine.kernels.places import APART, READS, RING, Places
from engine.kernels.program import Buffer
from engine.kernels.readers import Readers
from engine.kernels.ring import REQUEST, STATE
from engine.weights.heat import kept_heat, write_heat
from engine.weights.origin import Origin
from engine.weights.placement import Arena
from engine.weights.tensor import ExpertMatrix

HALF_LIFE = 256
"""Tokens after which a use counts half."""
MOST_GAIN = 1e12  # heat is scaled down when a use is worth so much: float32 has room for 10^38
MOST_KEPT = 1e6  # uses that a heat file may claim
LEAST_SLOTS = 2
ONE_POOL_BELOW = 16  # slots in the smallest pool
BATCH = 32  # experts read at once while loading
ExpertParts = tuple[ExpertMatrix, ExpertMatrix, ExpertMatrix]


class Pool(NamedTuple):
    """`n_slots` of `slot_bytes` each."""

    slot_bytes: int
    n_slots: int


def pools(sizes: Sequence[int], n_experts: int, n_bytes: int) -> tuple[tuple[Pool, ...], tuple[int, ...]]:
    """How n_bytes are divided for layers whose experts take `sizes`, and the number of each layer's pool. Never more
    than n_bytes but for LEAST_SLOTS of the largest size."""
    kinds = sorted(set(sizes))
    n_bytes = min(n_bytes, sum(sizes) * n_experts)
    found = tuple(Pool(s, n_bytes * sizes.count(s) // sum(sizes)) for s in kinds)
    if len(kinds) > 1 and min(pool.n_slots for pool in found) >= ONE_POOL_BELOW:
        return found, tuple(kinds.index(s) for s in sizes)
    return (Pool(kinds[-1], max(LEAST_SLOTS, n_bytes // kinds[-1])),), (0,) * len(sizes)


class ExpertCache:
    """Slots for the experts of `layers` (gate, up, down of each) that `origin` holds `base` bytes before their source.

    `address`, `layer` and `waves_at` are what ops name (kernels/fetch.py).
    """

    def __init__(
        self, origin: Origin, readers: Readers, places: Places, layers: Sequence[ExpertParts], base: int, n_bytes: int
    ) -> None:
        self.origin, self.readers, self.places = origin, readers, places
        self.n_layers, self.n_experts = len(layers), places.n_experts
        self.sizes = np.array([[m.n_bytes for m in parts] for parts in layers], np.int64)
        self.sources = np.array([_sources(parts, base, self.n_experts) for parts in layers], np.int64)
        self.pools, self.pool_of = pools([_slot_bytes(parts) for parts in layers], self.n_experts, n_bytes)
        self._gain = 1.0
        self._file: tuple[Path, str] | None = None
        self._saved = time.monotonic()
        self._trace: Buffer | None = None
        places.words[:] = 0
        self._build()

    def _build(self) -> None:
        n_slots = sum(pool.n_slots for pool in self.pools)
        self._cache, self._pools = Buffer(fetch.CACHE_BYTES), Buffer(len(self.pools) * fetch.POOL_BYTES)
        self._layers = Buffer(self.n_layers * fetch.LAYER_BYTES)
        self._heat, self._sources = Buffer(self.n_layers * self.n_experts * 4), Buffer(self.sources.nbytes)
        self._heads = Buffer(n_slots * fetch.HEAD)
        self._arena = Arena(sum(pool.n_slots * pool.slot_bytes + 2 * BLOCK for pool in self.pools))
        self.address, self.waves_at = self._cache.address, self._cache.address + fetch.WAVES
        self._words = self._cache.view(np.int64)
        self._words[fetch.RING // 8] = self.readers.ring
        self._words[fetch.FD // 8], self._words[fetch.DROP // 8] = self.origin.fd, int(not self.origin.is_direct)
        self._sources.view(np.int64)[:] = self.sources.reshape(-1)
        self.heat: NDArray[np.float32] = self._heat.view(np.float32).reshape(self.n_layers, self.n_experts)
        self._head_words = self._heads.view(np.int64).reshape(n_slots, -1)
        first = 0
        for i, pool in enumerate(self.pools):
            memory = self._arena.take(pool.n_slots * pool.slot_bytes, BLOCK)
            heads = self._head_words[first : first + pool.n_slots]
            heads[:, fetch.MEMORY // 8] = memory + np.arange(pool.n_slots) * pool.slot_bytes
            heads[:, RING // 8] = self.readers.ring
            words = self._pools.view(np.int64)[i * fetch.POOL_BYTES // 8 :]
            words[fetch.N_SLOTS // 8], words[fetch.HEADS // 8] = pool.n_slots, self._heads.address + first * fetch.HEAD
            first += pool.n_slots
        for i in range(self.n_layers):
            self._describe(i, self._layers.view(np.int64)[i * fetch.LAYER_BYTES // 8 :])

    def _describe(self, layer: int, words: NDArray[np.int64]) -> None:
        for at, value in (
            (fetch.POOL, self._pools.address + self.pool_of[layer] * fetch.POOL_BYTES),
            (fetch.PLACES, self.places.layer(layer)),
            (fetch.HEAT, self._heat.address + layer * self.n_experts * 4),
            (fetch.SOURCES, self._sources.address + layer * self.n_experts * 24),
            (fetch.NUMBER, layer),
            (fetch.N_READS, 1 if self._are_stretches(layer) else 3),
        ):
            words[at // 8] = value
        rooms = [_room(int(size)) for size in self.sizes[layer]]
        assert sum(rooms) <= self.pools[self.pool_of[layer]].slot_bytes, (layer, rooms)
        words[fetch.SIZES // 8 : fetch.SIZES // 8 + 3] = self.sizes[layer]
        words[fetch.PARTS // 8 : fetch.PARTS // 8 + 3] = np.cumsum([0, *rooms[:2]])

    def _are_stretches(self, layer: int) -> bool:
        """Whether each expert lies in one file as one stretch that a slot has room for: gate, up, down."""
        if len(self.origin.parts) > 1:
            return False
        begins, sizes = self.sources[layer], self.sizes[layer]
        gaps = begins[:, 1:] - begins[:, :2] - sizes[:2]
        lengths = begins[:, 2] + sizes[2] - begins[:, 0] // BLOCK * BLOCK
        room = self.pools[self.pool_of[layer]].slot_bytes // BLOCK * BLOCK
        return bool((gaps >= 0).all() and (gaps < BLOCK).all() and lengths.max() <= room)

    def layer(self, i: int) -> int:
        """The address of what ops must know of layer i."""
        assert 0 <= i < self.n_layers, i
        return self._layers.address + i * fetch.LAYER_BYTES

    def most_waves(self, layer: int, most_needed: int) -> int:
        """Into how many waves a step may come apart that needs so many experts of a layer."""
        n = self.pools[self.pool_of[layer]].n_slots
        return 1 if most_needed <= min(n, fetch.MOST) else -(-most_needed // min(n // 2, fetch.MOST))

    def resize(self, n_bytes: int) -> int:
        """Use about n_bytes from now on, but at least as many slots as a layer has experts, where there are so many:
        the program is recorded for that. What is behind goes back to the system, or is used again. Between steps;
        returns the bytes that are used now."""
        first = 0
        for i, pool in enumerate(self.pools):
            n = min(pool.n_slots, max(self.n_experts, n_bytes * pool.n_slots // max(1, self.n_bytes)))
            self._forget(np.arange(first + n, first + pool.n_slots))
            self._pools.view(np.int64)[(i * fetch.POOL_BYTES + fetch.N_SLOTS) // 8] = n
            start = int(self._head_words[first, fetch.MEMORY // 8])
            self._arena.give_back(start + n * pool.slot_bytes, (pool.n_slots - n) * pool.slot_bytes)
            first += pool.n_slots
        return self.used_bytes

    def _forget(self, slots: NDArray[np.intp]) -> None:
        """Nothing is in these slots any more."""
        heads = self._heads.address + slots * fetch.HEAD
        self.places.words[np.isin(self.places.words[:, :, READS // 8], heads)] = 0
        self._head_words[slots, fetch.OWNER // 8] = 0

    # --- heat over restarts ---

    def remember(self, path: Path, digest: str) -> None:
        """Begin with the heat that a run of the same model has left at `path`, and leave it there, too."""
        self._file = path, digest
        if (kept := kept_heat(path, self.n_layers, self.n_experts, digest)) is not None:
            self.heat[:] = np.minimum(np.array(kept), MOST_KEPT)

    def save(self, patience_s: float = 0.0) -> None:
        """Leave the heat for the next run, unless that was done less than patience_s ago; between steps."""
        now = time.monotonic()
        if self._file is not None and now - self._saved >= patience_s:
            write_heat(self._file[0], (self.heat / np.float32(self._gain)).tolist(), self._file[1])
            self._saved = now

    # --- what is in it ---

    @property
    def n_bytes(self) -> int:
        """Bytes of all slots."""
        return sum(pool.n_slots * pool.slot_bytes for pool in self.pools)

    @property
    def used_bytes(self) -> int:
        """Bytes of the slots that are in use, fewer after `resize`."""
        counts = self._pools.view(np.int64).reshape(len(self.pools), -1)[:, fetch.N_SLOTS // 8]
        return sum(int(n) * pool.slot_bytes for n, pool in zip(counts, self.pools, strict=True))

    @property
    def n_hits(self) -> int:
        """Experts that a layer needed in a step and that were there, so far."""
        return int(self._words[fetch.HITS // 8])

    @property
    def n_misses(self) -> int:
        """Those that were read, so far."""
        return int(self._words[fetch.MISSES // 8])

    @property
    def read_bytes(self) -> int:
        """Bytes that were read for them, so far."""
        return int(self._words[fetch.READ // 8])

    @property
    def held(self) -> NDArray[np.bool_]:
        """Which experts are in a slot, (layers, experts)."""
        held: NDArray[np.bool_] = self.places.words[:, :, READS // 8] != 0
        return held

    def fill(self, on_progress: Callable[[int, int], None]) -> None:
        """Have all slots in memory, and read those experts into them that have the most heat; none without any heat.
        ModelUnreadable when reading fails."""
        self._arena.populate()
        todo = self._hottest()
        on_progress(0, len(todo))
        for i in range(0, len(todo), BATCH):
            for layer, expert, slot in todo[i : i + BATCH]:
                fetch.bring(self.address, self.layer(layer), expert, self._heads.address + slot * fetch.HEAD)
            self.readers.finish()
            if fault := self.readers.take_fault():
                raise ModelUnreadable(f"{self.origin.path.name} cannot be read: {fault}")
            on_progress(min(i + BATCH, len(todo)), len(todo))

    def _hottest(self) -> list[tuple[int, int, int]]:
        """(layer, expert, slot), the hottest first, as many as there are slots."""
        found, first = [], 0
        for number, pool in enumerate(self.pools):
            layers = [i for i, p in enumerate(self.pool_of) if p == number]
            heat = self.heat[layers].reshape(-1)
            order = np.argsort(-heat, kind="stable")[: pool.n_slots]
            found += [
                (layers[at // self.n_experts], int(at % self.n_experts), first + i)
                for i, at in enumerate(order) if heat[at] > 0
            ]  # fmt: skip
            first += pool.n_slots
        return sorted(found, key=lambda one: -float(self.heat[one[0], one[1]]))

    def record(self, most: int) -> None:
        """Write down the next uses, up to so many, for `uses`."""
        self._trace = Buffer(16 + 8 * most)
        self._trace.view(np.int64)[1] = most
        self._words[fetch.TRACE // 8] = self._trace.address

    def uses(self) -> NDArray[np.int64]:
        """What was written down: (n, 3) of layer, expert, rows, in order of use."""
        assert self._trace is not None, "record() comes first"
        words = self._trace.view(np.int64)
        found = words[2 : 2 + int(words[0])]
        parts = found % fetch.ROWS_AT // fetch.LAYER_AT, found % fetch.LAYER_AT, found // fetch.ROWS_AT
        return np.stack(parts, axis=1)

    # --- steps ---

    def begin(self, n_rows: int) -> None:
        """Before a step of so many rows: what one use is worth in it."""
        if self._gain > MOST_GAIN:
            self.heat /= np.float32(self._gain)
            self._gain = 1.0
        self._gain *= 2.0 ** (n_rows / HALF_LIFE)
        self._cache.view(np.float32)[fetch.GAIN // 4] = self._gain

    def end(self, is_whole: bool, is_sound: bool) -> None:
        """After a step, when nothing is on its way any more: forget what was not read to its end, and everything when
        the file is not sound."""
        if is_whole and is_sound:
            return
        is_read = self._head_words[:, [(part * REQUEST + STATE) // 8 for part in range(3)]] == 1
        is_here = is_read[:, 0] & (is_read.all(axis=1) | (self._head_words[:, APART // 8] == 0))
        owned = self._head_words[:, fetch.OWNER // 8] != 0
        self._forget(np.flatnonzero(owned & ~(is_here & is_sound)))


def _sources(parts: ExpertParts, base: int, n_experts: int) -> NDArray[np.int64]:
    """Where in the file each expert's gate, up and down begin, (experts, 3)."""
    at = [m.whole.parts or [m.whole.source + e * m.n_bytes for e in range(n_experts)] for m in parts]
    return np.array(at, np.int64).T - base


def _room(n_bytes: int) -> int:
    """Room in a slot for a part, wherever in a block it begins."""
    return -(-n_bytes // BLOCK) * BLOCK + BLOCK


def _slot_bytes(parts: ExpertParts) -> int:
    return sum(_room(m.n_bytes) for m in parts)
