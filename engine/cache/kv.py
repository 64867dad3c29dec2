"""Keys and values of sequences: page tables, growing, sharing, cutting back. Not here: pages (pool.py), sizes
(layout.py), a page's inside (kernels/kv_*.py).

A page holds 256 positions of all layers and KV heads that keep the same positions, so a position costs one page table
entry for all of them. Layers with a window have pages of their own, which are given back once nobody can look at them:

    page          [layer][kv head][K part][V part]
    page table    int64 [pools][n_ctx / 256]: address of each page, read by the kernels through the step block; 0 for
                  one that is not there (not yet, or not any more)

A page may belong to several sequences. Whoever writes into a shared page copies it first, so a fork costs nothing until
it goes its own way.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.cache.layout import BACK, PAGE, kept_positions, row_bytes, whole_pages
from engine.cache.pool import KvFull, PagePool
from engine.errors import UsageError
from engine.kernels.regions import address_of


class KvCache:
    """Pages for up to n_seqs sequences of up to n_ctx positions each (rounded up to a page).

    `windows`: for each layer the positions it sees, 0 for all; `rows`: the most a step adds to a sequence. `n_pages`:
    in all, of a cache without windows; None is room for n_seqs whole contexts, with which no page is ever missing.
    `head_dim` is the width of a head's keys and, where `v_dim` is 0, of its values.
    `layer_bytes` and `head_bytes` are the strides inside a page, `k_bytes` the size of a head's K part.
    """

    def __init__(
        self, n_ctx: int, n_layers: int, n_kv_heads: int, head_dim: int, type_k: str, type_v: str, n_seqs: int = 1,
        n_pages: int | None = None, windows: Sequence[int] = (), rows: int = 512, v_dim: int = 0,
    ) -> None:  # fmt: skip
        if n_ctx < 1:
            raise UsageError(f"a context of {n_ctx} positions holds nothing; ask for 1 or more", param="ctx_size")
        self.type_k, self.type_v, self.n_seqs = type_k, type_v, n_seqs
        self.k_bytes = PAGE * row_bytes(type_k, head_dim, "cache_type_k")
        self.v_bytes = PAGE * row_bytes(type_v, v_dim or head_dim, "cache_type_v")
        self.head_bytes = self.k_bytes + self.v_bytes
        self.layer_bytes = n_kv_heads * self.head_bytes
        self.n_ctx, self.rows = whole_pages(n_ctx), rows
        kept = [kept_positions(self.n_ctx, window, rows) for window in windows or [0] * n_layers]
        sizes = sorted(set(kept), reverse=True)
        assert len(kept) == n_layers and (n_pages is None or sizes == [self.n_ctx]), (n_layers, kept, n_pages)
        self._places = [(sizes.index(n), kept[:i].count(n)) for i, n in enumerate(kept)]
        self.pools: list[PagePool] = []
        for n in sizes:
            window = max(windows[i] for i in range(n_layers) if kept[i] == n) if n < self.n_ctx else 0
            count = n_seqs * n // PAGE if n_pages is None else n_pages
            self.pools.append(PagePool(count, kept.count(n) * self.layer_bytes, window))
        self.sequences: list[KvSequence] = []
        self.spare: Callable[[], bool] = lambda: False
        """Gives back pages that are kept for nobody in particular (prefix.py); False when there are none."""

    def place(self, layer: int) -> tuple[int, int]:
        """Of a layer: bytes from the start of a page table to its pool's part, bytes from the start of a page to it."""
        pool, i = self._places[layer]
        assert (i + 1) * self.layer_bytes <= self.pools[pool].page_bytes, layer
        return pool * self.n_ctx // PAGE * 8, i * self.layer_bytes

    def sees(self, layer: int) -> int:
        """The most positions that a row may look at in a layer; 0: all."""
        return self.pools[self._places[layer][0]].window

    @property
    def n_bytes(self) -> int:
        return sum(pool.n_bytes for pool in self.pools)

    @property
    def n_pages(self) -> int:
        return sum(pool.n_pages for pool in self.pools)

    @property
    def n_free(self) -> int:
        """Pages nobody holds."""
        return sum(pool.n_free for pool in self.pools)

    def open(self) -> "KvSequence":
        """A sequence of length 0; KvFull when n_seqs are open."""
        if len(self.sequences) >= self.n_seqs:
            raise KvFull(
                f"all {self.n_seqs} sequences of the key-value cache are in use; close one, wait, or start with a "
                "larger --parallel"
            )
        sequence = KvSequence(self)
        self.sequences.append(sequence)
        return sequence

    def populate(self) -> None:
        """Have all pages in memory now; a page that was never written takes none."""
        for pool in self.pools:
            pool.populate()

    def release_memory(self) -> int:
        """Give free pages back to the system; returns their bytes. They read as zeros when they are used again."""
        return sum(pool.release_memory() for pool in self.pools)


class Strand:
    """A sequence's pages in one pool: of tiles first, first + 1, ... of 256 positions; `table` says where they lie."""

    def __init__(self, pool: PagePool, table: NDArray[np.int64]) -> None:
        self.pool, self.table = pool, table
        self.first = 0
        self.pages: list[int] = []

    @property
    def end(self) -> int:
        """The first tile behind the last page."""
        return self.first + len(self.pages)

    def opens(self, position: int) -> int:
        """The first tile that a row at `position` looks at."""
        return max(0, position + 1 - self.pool.window) // PAGE if self.pool.window else 0

    def let_go(self, length: int) -> None:
        """Give back what no row from `length` on looks at, nor would after going BACK."""
        while self.pages and self.first < self.opens(length - BACK):
            self.pool.drop(self.pages.pop(0))
            self.table[self.first] = 0
            self.first += 1

    def shared(self, length: int) -> list[int]:
        """Tiles from the one of position `length` on that others hold too."""
        return [i for i in range(max(self.first, length // PAGE), self.end) if self.pool.is_shared(self.of(i))]

    def of(self, tile: int) -> int:
        return self.pages[tile - self.first]

    def append(self, page: int) -> None:
        self.table[self.end] = self.pool.address_of(page)
        self.pages.append(page)

    def own(self, tile: int, has_text: bool) -> None:
        """Have a page of our own in place of a shared one, with what it holds."""
        old, new = self.of(tile), self.pool.take()
        if has_text:
            self.pool.page(new)[:] = self.pool.page(old)
        self.pool.drop(old)
        self.pages[tile - self.first] = new
        self.table[tile] = self.pool.address_of(new)

    def cut(self, n_tiles: int) -> None:
        """Give back the pages of tiles from n_tiles on."""
        while self.pages and self.end > n_tiles:
            self.table[self.end - 1] = 0
            self.pool.drop(self.pages.pop())
        self.first = min(self.first, n_tiles)


class KvSequence:
    """The pages of one sequence. `table` and its `address` stay where they are until `close`."""

    def __init__(self, cache: KvCache) -> None:
        self.cache = cache
        self.length = 0
        n = cache.n_ctx // PAGE
        self.table: NDArray[np.int64] = np.zeros(len(cache.pools) * n, np.int64)
        self.address = address_of(self.table)
        self.strands = [Strand(pool, self.table[i * n : i * n + n]) for i, pool in enumerate(cache.pools)]

    @property
    def pages(self) -> list[int]:
        """Those of the layers that keep most."""
        return self.strands[0].pages

    def reserve(self, n: int) -> None:
        """Make positions length..length+n-1 writable: takes pages and copies a shared one; after KvFull all is as good
        as before."""
        end = self.length + n
        if end > self.cache.n_ctx:
            raise KvFull(
                f"{end} positions are more than the context of {self.cache.n_ctx}; start with a larger --ctx-size"
            )
        assert len(self.strands) == 1 or n <= self.cache.rows, (n, self.cache.rows)
        tiles = -(-end // PAGE)
        for strand in self.strands:
            strand.let_go(self.length)
        while (lacking := self._lacking(n, tiles)) is not None:
            if not self.cache.spare():
                raise KvFull(
                    f"{lacking[0]} more pages of 256 positions are needed and {lacking[1]} are free; "
                    "start with a larger --ctx-size or --parallel"
                )
        for strand in self.strands:
            for tile in strand.shared(self.length) if n else ():
                strand.own(tile, has_text=tile * PAGE < self.length)
            while strand.end < tiles:
                strand.append(strand.pool.take())

    def _lacking(self, n: int, tiles: int) -> tuple[int, int] | None:
        """Pages that n positions more, up to so many tiles, need of a pool that has too few, and those it has."""
        for strand in self.strands:
            wanted = len(strand.shared(self.length) if n else ()) + max(0, tiles - strand.end)
            if wanted > strand.pool.n_free:
                return wanted, strand.pool.n_free
        return None

    def advance(self, n: int) -> None:
        """Positions that a step has written and that now count."""
        self.length += n
        assert all(self.length <= strand.end * PAGE for strand in self.strands), f"length {self.length}"

    def reusable(self, length: int) -> int:
        """How much can be kept of the first `length` positions: all, or nothing where a layer with a window has already
        given back what the next row would look at."""
        assert 0 <= length <= self.length, f"{length} of {self.length}"
        return length if all(s.first <= s.opens(length) for s in self.strands) else 0

    def truncate(self, length: int) -> None:
        """Forget positions from `length` on, which is `reusable`; whole pages behind it are given back."""
        assert length == self.reusable(length), f"truncate to {length} of {self.length}"
        self.length = length
        for strand in self.strands:
            strand.cut(-(-length // PAGE))

    def fork(self) -> "KvSequence":
        """Another sequence with the same positions; pages are shared until one of the two writes into them."""
        other = self.cache.open()
        other.follow(self)
        return other

    def follow(self, other: "KvSequence") -> None:
        """Forget everything and hold what `other` holds, in the same pages."""
        self.truncate(0)
        self.length = other.length
        for mine, its in zip(self.strands, other.strands, strict=True):
            mine.first = its.first
            for tile in range(its.first, -(-other.length // PAGE)):
                mine.pool.hold(its.of(tile))
                mine.append(its.of(tile))

    def leave(self) -> None:
        """Be none of the cache's sequences any more, and keep the pages."""
        self.cache.sequences.remove(self)

    def close(self) -> None:
        """Give every page back; closing twice does nothing."""
        if self in self.cache.sequences:
            self.leave()
            self.truncate(0)
