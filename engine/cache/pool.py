"""Pages of one size in one stretch of memory: which are free, who holds the others. Not here: sequences (kv.py).

Memory is reserved at once and touched when it is written. A page may have several holders.
"""

import mmap

import numpy as np
from numpy.typing import NDArray

from engine.cache.layout import PAGE
from engine.errors import Busy
from engine.kernels.regions import live


class KvFull(Busy):
    """No free page is left for a sequence that grows."""

    code = "kv_cache_full"


class PagePool:
    """`n_pages` pages of `page_bytes`, which hold the layers that see `window` positions (0: all)."""

    def __init__(self, n_pages: int, page_bytes: int, window: int = 0) -> None:
        self.n_pages, self.page_bytes, self.window = n_pages, page_bytes, window
        self.n_bytes = n_pages * page_bytes
        self._arena = mmap.mmap(-1, self.n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.bytes: NDArray[np.uint8] = np.frombuffer(self._arena, np.uint8)
        self.address = int(self.bytes.ctypes.data)
        for page in range(n_pages):
            live(self, self.address_of(page), page_bytes)
        self._holders = np.zeros(n_pages, np.int64)
        self._free = list(range(n_pages - 1, -1, -1))
        self._used: set[int] = set()  # pages that may hold memory

    @property
    def n_free(self) -> int:
        """Pages nobody holds."""
        return len(self._free)

    def address_of(self, page: int) -> int:
        """A page's first byte."""
        return self.address + page * self.page_bytes

    def page(self, index: int) -> NDArray[np.uint8]:
        """The bytes of a page."""
        return self.bytes[index * self.page_bytes : (index + 1) * self.page_bytes]

    def is_shared(self, page: int) -> bool:
        return bool(self._holders[page] > 1)

    def take(self) -> int:
        """A free page, which has one holder then."""
        if not self._free:
            raise KvFull(
                f"all {self.n_pages} pages ({self.n_pages * PAGE} positions) of the key-value cache are in use; "
                "start with a larger --ctx-size or --parallel"
            )
        page = self._free.pop()
        self._used.add(page)
        self._holders[page] = 1
        return page

    def hold(self, page: int) -> None:
        """One holder more."""
        self._holders[page] += 1

    def drop(self, page: int) -> None:
        """One holder less; without any the page is free."""
        self._holders[page] -= 1
        assert self._holders[page] >= 0, f"page {page} dropped once too often"
        if self._holders[page] == 0:
            self._free.append(page)

    def populate(self) -> None:
        """Have all pages in memory now; a page that was never written takes none."""
        self.bytes[:: mmap.PAGESIZE] = 0

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
