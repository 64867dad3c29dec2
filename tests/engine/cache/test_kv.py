"""Who holds which page: sizes, sharing, copies, exhaustion. Not here: what the kernels write into pages."""

import numpy as np
import pytest

from engine.cache.kv import KvCache, KvFull
from engine.errors import UsageError


def small(n_pages: int = 4, n_seqs: int = 3) -> KvCache:
    """One context's pages for all."""
    return KvCache(256 * n_pages, 2, 2, 32, "f16", "f16", n_seqs, n_pages)


@pytest.mark.parametrize(
    ("type_k", "type_v", "per_element"),
    [("f16", "f16", 4.0), ("q8_0", "q8_0", 2 * 34 / 32), ("q8_0", "f16", 2 + 34 / 32),
     ("f32", "bf16", 6.0), ("q8_0", "q4_0", (34 + 18) / 32)],
)
@pytest.mark.parametrize(("n_ctx", "rounded"), [(1, 256), (256, 256), (257, 512), (4096, 4096)])
def test_memory_is_the_formula(type_k: str, type_v: str, per_element: float, n_ctx: int, rounded: int) -> None:
    cache = KvCache(n_ctx, 30, 3, 64, type_k, type_v)
    assert cache.n_ctx == rounded
    assert cache.n_bytes == 30 * 3 * 64 * rounded * per_element == cache.pools[0].bytes.nbytes
    assert cache.n_pages * cache.pools[0].page_bytes == cache.n_bytes


def test_heads_that_a_type_cannot_hold_are_refused_with_what_would_do() -> None:
    with pytest.raises(UsageError, match=r"q8_0 needs heads of a multiple of 32 .* have 80; use f32, f16 or bf16"):
        KvCache(256, 1, 1, 80, "f16", "q8_0")
    with pytest.raises(UsageError, match=r"multiple of 8 .* have 20; no cache type"):
        KvCache(256, 1, 1, 20, "f16", "f16")
    with pytest.raises(UsageError, match="'q5_0'; use one of f32, f16, bf16, q8_0, q4_0"):
        KvCache(256, 1, 1, 32, "q5_0", "f16")
    with pytest.raises(UsageError, match="context of 0"):
        KvCache(0, 1, 1, 32, "f16", "f16")


def test_a_growing_sequence_takes_pages_and_its_table_points_at_them() -> None:
    cache = small()
    sequence = cache.open()
    address = sequence.address
    sequence.reserve(256)
    sequence.advance(256)
    assert (len(sequence.pages), cache.n_free) == (1, 3)
    sequence.reserve(1)
    assert (len(sequence.pages), cache.n_free, sequence.address) == (2, 2, address)
    assert list(sequence.table) == [cache.pools[0].address_of(p) for p in sequence.pages] + [0, 0]
    sequence.advance(1)
    sequence.truncate(256)
    assert (len(sequence.pages), cache.n_free, sequence.table[1]) == (1, 3, 0)
    sequence.close()
    sequence.close()
    assert (cache.n_free, cache.sequences) == (4, [])


def test_exhaustion_is_one_sentence_and_changes_nothing() -> None:
    cache = small()
    first, second = cache.open(), cache.open()
    first.reserve(700)
    first.advance(700)
    with pytest.raises(KvFull, match="2 more pages of 256 positions are needed and 1 are free"):
        second.reserve(300)
    assert (second.pages, cache.n_free) == ([], 1)
    with pytest.raises(KvFull, match="1100 positions are more than the context of 1024"):
        first.reserve(400)
    cache.open()
    with pytest.raises(KvFull, match=r"all 3 sequences.*--parallel"):
        cache.open()


def test_every_sequence_has_room_for_a_whole_context() -> None:
    cache = KvCache(700, 2, 2, 32, "f16", "f16", n_seqs=3)
    assert (cache.n_ctx, cache.n_pages, cache.n_bytes) == (768, 9, 9 * cache.pools[0].page_bytes)
    sequences = [cache.open() for _ in range(3)]
    for sequence in sequences:
        sequence.reserve(768)
        sequence.advance(768)
    assert cache.n_free == 0 and len({p for s in sequences for p in s.pages}) == 9
    with pytest.raises(KvFull, match=r"769 positions are more than the context of 768; .*--ctx-size"):
        sequences[0].reserve(1)
    sequences[1].close()
    again = cache.open()
    again.reserve(768)
    assert cache.n_free == 0


def test_a_fork_shares_pages_until_one_of_the_two_writes() -> None:
    cache = small()
    first = cache.open()
    first.reserve(300)
    cache.pools[0].page(first.pages[1])[:] = 5
    first.advance(300)
    second = first.fork()
    assert second.pages == first.pages and cache.n_free == 2
    first.reserve(10)  # the half filled page is copied for whoever comes first
    assert first.pages[0] == second.pages[0] and first.pages[1] != second.pages[1] and cache.n_free == 1
    assert np.all(cache.pools[0].page(first.pages[1]) == 5)
    second.reserve(10)  # and is the other's alone then
    assert cache.n_free == 1
    first.close()
    assert cache.n_free == 2
    second.close()
    assert cache.n_free == 4


def test_a_fork_cut_back_into_a_shared_page_does_not_write_there() -> None:
    cache = small()
    first = cache.open()
    first.reserve(512)
    first.advance(512)
    second = first.fork()
    second.truncate(200)
    second.reserve(100)
    assert second.pages[0] != first.pages[0] and second.pages[1] not in first.pages
    assert cache.n_free == 0
    third = first.fork()
    third.truncate(256)
    with pytest.raises(KvFull):
        third.reserve(1)
    second.close()
    third.reserve(1)
    assert third.pages[0] == first.pages[0] and third.pages[1] != first.pages[1]


def test_a_copy_that_does_not_fit_is_refused() -> None:
    cache = small(n_pages=1)
    first = cache.open()
    first.reserve(10)
    first.advance(10)
    second = first.fork()
    with pytest.raises(KvFull):
        second.reserve(1)
    first.close()
    second.reserve(1)


def test_given_back_memory_reads_as_zeros_and_the_rest_stays() -> None:
    cache = KvCache(1024, 3, 1, 32, "q8_0", "q8_0")  # 52,224 bytes a page: not whole system pages
    sequence = cache.open()
    sequence.reserve(1024)
    cache.pools[0].bytes[:] = 9
    sequence.advance(1024)
    sequence.truncate(256)
    kept = sequence.pages[0]
    given = cache.release_memory()
    assert 0 < given <= 3 * cache.pools[0].page_bytes
    assert np.all(cache.pools[0].page(kept) == 9)
    assert np.count_nonzero(cache.pools[0].bytes == 0) == given
    assert cache.release_memory() == 0
