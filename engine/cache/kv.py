"""Pages of keys and values: the arena, who holds which page, page tables. Not here: sizes (layout.py),
a page's inside (kernels/kv_*.py).

A page holds 256 positions of all layers and KV heads, so a position costs one page table entry for the whole model:

    page          [layer][kv head][K part][V part]
    page table    int64 [n_pages]: address of each page, read by the kernels through the step block

A page may belong to several sequences. Whoever writes into a shared page copies it first, so a fork costs nothing until
it goes its own way. Memory is reserved at once and touched when it is written.
"""

import mmap

import numpy as np
from numpy.typing import NDArray

from engine.cache.layout import PAGE, row_bytes, whole_pages
from engine.errors import Busy, UsageError
from engine.kernels.regions import address_of, live


class KvFull(Busy):
    """No free page is left for a sequence that grows."""

    code = "kv_cache_full"


class KvCache:
    """An arena of pages for up to n_seqs sequences of up to n_ctx positions each (rounded up to a page).

    `n_pages` pages in all; None is room for n_seqs whole contexts, with which no page is ever missing.
    `layer_bytes` and `head_bytes` are the strides inside a page, `k_bytes` the size of a head's K part.
    """

    def __init__(
        self, n_ctx: int, n_layers: int, n_kv_heads: int, head_dim: int, type_k: str, type_v: str, n_seqs: int = 1,
        n_pages: int | None = None,
    ) -> None:  # fmt: skip
        if n_ctx < 1:
            raise UsageError(f"a context of {n_ctx} positions holds nothing; ask for 1 or more", param="ctx_size")
        self.type_k, self.type_v, self.n_seqs = type_k, type_v, n_seqs
        self.k_bytes = PAGE * row_bytes(type_k, head_dim, "cache_type_k")
        self.v_bytes = PAGE * row_bytes(type_v, head_dim, "cache_type_v")
        self.head_bytes = self.k_bytes + self.v_bytes
        self.layer_bytes = n_kv_heads * self.head_bytes
        self.page_bytes = n_layers * self.layer_bytes
        self.n_ctx = whole_pages(n_ctx)
        self.n_pages = n_seqs * self.n_ctx // PAGE if n_pages is None else n_pages
        self.n_bytes = self.n_pages * self.page_bytes
        self._arena = mmap.mmap(-1, self.n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._bytes: NDArray[np.uint8] = np.frombuffer(self._arena, np.uint8)
        self.address = int(self._bytes.ctypes.data)
        for page in range(self.n_pages):
            live(self, self.address + page * self.page_bytes, self.page_bytes)
        self._holders = np.zeros(self.n_pages, np.int64)
        self._free = list(range(self.n_pages - 1, -1, -1))
        self._used: set[int] = set()  # pages that may hold memory
        self.sequences: list[KvSequence] = []

    @property
    def n_free(self) -> int:
        """Pages nobody holds."""
        return len(self._free)

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
        self._bytes[:: mmap.PAGESIZE] = 0

    def release_memory(self) -> int:
        """Give free pages back to the system; returns their bytes. They read as zeros when they are used again."""
        given = 0
        for page in sorted(self._used.intersection(self._free)):
            start = -(-page * self.page_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
            end = (page + 1) * self.page_bytes // mmap.PAGESIZE * mmap.PAGESIZE
            if end > start:
                self._arena.madvise(mmap.MADV_DONTNEED, start, end - start)
                given += end - start
            self._used.discard(page)
        return given

    def _take(self) -> int:
        if not self._free:
            raise KvFull(
                f"all {self.n_pages} pages ({self.n_pages * PAGE} positions) of the key-value cache are in use; "
                "start with a larger --ctx-size or --parallel"
            )
        page = self._free.pop()
        self._used.add(page)
        self._holders[page] = 1
        return page

    def _drop(self, page: int) -> None:
        self._holders[page] -= 1
        assert self._holders[page] >= 0, f"page {page} dropped once too often"
        if self._holders[page] == 0:
            self._free.append(page)

    def page(self, index: int) -> NDArray[np.uint8]:
        """The bytes of a page."""
        return self._bytes[index * self.page_bytes : (index + 1) * self.page_bytes]


class KvSequence:
    """The pages of one sequence. `table` and its `address` stay where they are until `close`."""

    def __init__(self, cache: KvCache) -> None:
        self.cache = cache
        self.length = 0
        self.pages: list[int] = []
        self.table: NDArray[np.int64] = np.zeros(cache.n_ctx // PAGE, np.int64)
        self.address = address_of(self.table)

    def reserve(self, n: int) -> None:
        """Make positions length..length+n-1 writable: takes pages and copies a shared one; KvFull changes nothing."""
        end = self.length + n
        if end > self.cache.n_ctx:
            raise KvFull(
                f"{end} positions are more than the context of {self.cache.n_ctx}; start with a larger --ctx-size"
            )
        first = self.length // PAGE
        last = len(self.pages)
        shared = [i for i in range(first, last) if self.cache._holders[self.pages[i]] > 1] if n else []
        fresh = max(0, -(-end // PAGE) - last)
        if len(shared) + fresh > self.cache.n_free:
            raise KvFull(
                f"{len(shared) + fresh} more pages of 256 positions are needed and {self.cache.n_free} are free; "
                "start with a larger --ctx-size or --parallel"
            )
        for i in shared:
            old, new = self.pages[i], self.cache._take()
            if i * PAGE < self.length:
                self.cache.page(new)[:] = self.cache.page(old)
            self.cache._drop(old)
            self._set(i, new)
        for i in range(last, last + fresh):
            self.pages.append(-1)
            self._set(i, self.cache._take())

    def advance(self, n: int) -> None:
        """Positions that a step has written and that now count."""
        self.length += n
        assert self.length <= len(self.pages) * PAGE, f"length {self.length} over {len(self.pages)} pages"

    def truncate(self, length: int) -> None:
        """Forget positions from `length` on; whole pages behind it are given back."""
        assert 0 <= length <= self.length, f"truncate to {length} of {self.length}"
        self.length = length
        while len(self.pages) > -(-length // PAGE):
            self.cache._drop(self.pages.pop())
            self.table[len(self.pages)] = 0

    def fork(self) -> "KvSequence":
        """Another sequence with the same positions; pages are shared until one of the two writes into them."""
        other = self.cache.open()
        other.length = self.length
        for i in range(-(-self.length // PAGE)):
            self.cache._holders[self.pages[i]] += 1
            other.pages.append(-1)
            other._set(i, self.pages[i])
        return other

    def close(self) -> None:
        """Give every page back; closing twice does nothing."""
        if self in self.cache.sequences:
            self.cache.sequences.remove(self)
            self.length = 0
            self.truncate(0)

    def _set(self, i: int, page: int) -> None:
        self.pages[i] = page
        self.table[i] = self.cache.address + page * self.cache.page_bytes
