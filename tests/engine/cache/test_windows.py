"""Layers with a window keep pages of their own and give them back. Not here: layers without (test_kv.py)."""

import numpy as np
import pytest

from engine.cache.kv import KvCache, KvFull, KvSequence


def made(n_ctx: int = 4096, window: int = 300, rows: int = 64, n_seqs: int = 2) -> KvCache:
    """Four layers, of which the second and the fourth see everything."""
    return KvCache(n_ctx, 4, 2, 32, "f16", "f16", n_seqs, windows=[window, 0, window, 0], rows=rows)


def write(sequence: KvSequence, n: int) -> None:
    """What a step does: n positions more, each layer's pages marked with their tile."""
    sequence.reserve(n)
    for strand in sequence.strands:
        for tile in range(sequence.length // 256, -(-(sequence.length + n) // 256)):
            strand.pool.page(strand.of(tile))[:] = tile
    sequence.advance(n)


def seen(sequence: KvSequence, window: int) -> set[int]:
    """Tiles that the next row looks at in a layer with a window, by position, one by one."""
    return {p // 256 for p in range(max(0, sequence.length - window + 1), sequence.length)}


def test_the_layers_of_a_pool_lie_one_behind_the_other() -> None:
    cache = made()
    assert [pool.window for pool in cache.pools] == [0, 300]
    assert [cache.place(i) for i in range(4)] == [(128, 0), (0, 0), (128, cache.layer_bytes), (0, cache.layer_bytes)]
    everywhere = KvCache(4096, 3, 2, 32, "f16", "f16", windows=[300] * 3, rows=64)
    assert [everywhere.place(i)[0] for i in range(3)] == [0, 0, 0] and everywhere.pools[0].window == 300
    short = made(n_ctx=512)  # a context that the window holds: as if there were none
    assert [pool.window for pool in short.pools] == [0] and short.place(2) == (0, 2 * short.layer_bytes)


@pytest.mark.parametrize("rows", [1, 7, 64])
@pytest.mark.parametrize("window", [1, 24, 256, 300, 1000])
def test_what_a_window_shows_is_there_and_little_else(window: int, rows: int) -> None:
    cache = made(window=window, rows=rows)
    a, b = cache.open(), cache.open()
    n_free = cache.pools[1].n_free
    steps = [min(rows, 1 + i * 37 % 64) for i in range(10_000)]
    for n in steps:
        if a.length + n > 4096:
            break
        before = a.length
        for sequence in (a, b):
            write(sequence, n)
            wide, narrow = sequence.strands
            assert sequence.pages == wide.pages and len(wide.pages) == -(-sequence.length // 256)
            for tile in seen(sequence, window):
                assert np.all(narrow.pool.page(narrow.of(tile)) == tile)
                assert narrow.table[tile] == narrow.pool.address_of(narrow.of(tile))
        assert np.count_nonzero(a.strands[1].table) == len(a.strands[1].pages) <= n_free // 2
        assert a.strands[1].first <= max(0, before - 256 - window + 1) // 256
    assert a.length > 3900 and a.strands[1].first > 3900 // 256 - 2 - -(-(window + rows + 256) // 256)
    for sequence in (a, b):
        sequence.close()
    assert cache.n_free == cache.n_pages


def test_cutting_back_a_little_keeps_all_and_far_back_nothing() -> None:
    cache = made()
    sequence = cache.open()
    while sequence.length < 2048:
        write(sequence, 64)
    assert sequence.reusable(2048) == 2048 and sequence.reusable(2048 - 256) == 2048 - 256
    assert sequence.reusable(1000) == 0 and sequence.reusable(0) == 0
    sequence.truncate(1800)
    assert sequence.length == 1800 and all(s.end == 8 for s in sequence.strands)
    assert seen(sequence, 300) <= set(range(sequence.strands[1].first, 8))
    write(sequence, 64)
    with pytest.raises(AssertionError, match="truncate to 400"):
        sequence.truncate(400)
    sequence.truncate(0)
    assert cache.n_free == cache.n_pages and sequence.strands[1].first == 0 and not sequence.table.any()
    write(sequence, 64)
    assert len(sequence.strands[1].pages) == 1


def test_a_fork_shares_the_window_and_each_lets_go_for_itself() -> None:
    cache = made()
    first = cache.open()
    while first.length < 1000:
        write(first, 50)
    second = first.fork()
    assert [s.pages for s in second.strands] == [s.pages for s in first.strands]
    assert np.array_equal(second.table, first.table)
    for _ in range(40):
        write(first, 50)
        assert all(np.all(second.strands[1].pool.page(second.strands[1].of(t)) == t) for t in seen(second, 300))
    for _ in range(60):
        write(second, 50)
    assert first.strands[1].first > 8 and not set(first.strands[1].pages) & set(second.strands[1].pages)
    first.close()
    second.close()
    assert cache.n_free == cache.n_pages


def test_both_full_contexts_always_fit_whatever_they_shared() -> None:
    cache = made(n_ctx=2048, window=512, rows=64)
    first = cache.open()
    while first.length < 1024:
        write(first, 64)
    second = first.fork()
    while second.length < 2048:
        write(first, 64)
        write(second, 64)
    for sequence in (first, second):
        with pytest.raises(KvFull, match="2049 positions are more than the context of 2048"):
            sequence.reserve(1)
