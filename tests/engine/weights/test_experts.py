"""How a cache of experts is divided into slots. Not here: what is in them (tests/engine/test_expert_cache.py)."""

import pytest

from engine.weights.experts import LEAST_SLOTS, ONE_POOL_BELOW, Pool, pools


def test_one_size_is_one_pool() -> None:
    assert pools([100] * 24, 64, 100 * 350 + 99) == ((Pool(100, 350),), (0,) * 24)


def test_two_sizes_share_by_the_bytes_of_their_layers() -> None:
    """So each layer has as many slots as another, and no slot is larger than its expert."""
    found, of = pools([100, 130, 100, 100], 256, 43_000)
    assert found == (Pool(100, 300), Pool(130, 100)) and of == (0, 1, 0, 0)


@pytest.mark.parametrize("n_bytes", [0, 1, 999, 12_345, 3_000_000])
@pytest.mark.parametrize("sizes", [[100] * 4, [100, 130, 130, 100], [7, 1000, 50]])
def test_never_more_than_was_given(n_bytes: int, sizes: list[int]) -> None:
    found, of = pools(sizes, 64, n_bytes)
    assert sum(p.n_slots * p.slot_bytes for p in found) <= max(n_bytes, LEAST_SLOTS * max(sizes))
    assert all(found[pool].slot_bytes >= size for pool, size in zip(of, sizes, strict=True))
    assert sum(p.n_slots for p in found) <= 64 * len(sizes), "none that can never be used"


def test_a_small_cache_is_not_divided() -> None:
    n_bytes = (ONE_POOL_BELOW - 1) * 230
    assert pools([100, 130], 64, n_bytes)[0] == (Pool(130, n_bytes // 130),)
