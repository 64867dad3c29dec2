"""The KV cache's closed formula to the byte: against exact figures, another way to count, and what is allocated."""

from itertools import product

import pytest

from engine.cache.kv import KvCache
from engine.cache.layout import KV_TYPES, kv_bytes, position_bytes

# (bytes of a block, values in it), as in the block formats' own drawings.
BLOCKS = {"f32": (4, 1), "f16": (2, 1), "bf16": (2, 1), "q8_0": (34, 32), "q4_0": (18, 32)}


def counted(n_layers: int, n_kv_heads: int, head_dim: int, n_ctx: int, type_k: str, type_v: str) -> int:
    """Block by block."""
    total = 0
    for kind in (type_k, type_v):
        size, values = BLOCKS[kind]
        total += n_layers * n_kv_heads * -(-n_ctx // 256) * 256 * (head_dim // values) * size
    return total


@pytest.mark.parametrize(("type_k", "type_v"), list(product(KV_TYPES, KV_TYPES)))
@pytest.mark.parametrize("n_ctx", [1, 255, 256, 257, 2048, 8192, 16384, 40960])
@pytest.mark.parametrize(("n_layers", "n_kv_heads", "head_dim"), [(2, 2, 32), (30, 3, 64), (36, 8, 128)])
def test_plan_formula_and_allocation_are_one_number(
    n_layers: int, n_kv_heads: int, head_dim: int, n_ctx: int, type_k: str, type_v: str
) -> None:
    planned = kv_bytes([n_kv_heads] * n_layers, head_dim, head_dim, n_ctx, type_k, type_v)
    assert planned == counted(n_layers, n_kv_heads, head_dim, n_ctx, type_k, type_v)
    cache = KvCache(n_ctx, n_layers, n_kv_heads, head_dim, type_k, type_v)  # reserved, not touched
    assert planned == cache.n_bytes == cache.pools[0].bytes.nbytes


@pytest.mark.parametrize("n_seqs", [2, 5])
def test_sequences_beside_each_other_take_as_many_whole_contexts(n_seqs: int) -> None:
    one = kv_bytes([2] * 4, 64, 64, 1000, "q8_0", "f16")
    assert KvCache(1024, 4, 2, 64, "q8_0", "f16", n_seqs).n_bytes == n_seqs * one


PER_LAYER = {
    "heads that differ, layers without a cache": (([8, 0, 0, 1, 0, 0, 8, 2], 128, 128, 32768), (), 318_767_104),
    "88 layers, 16 heads in all": (([2 * (i % 11 == 5) for i in range(88)], 128, 128, 32768), (), 268_435_456),
    "five of six layers see 512 positions and keep 1,536": (
        ([4] * 24, 256, 256, 32768), [0 if i % 6 == 5 else 512 for i in range(24)], 662_700_032),
    "keys wider than values": (([16] * 4, 192, 128, 4096), (), 167_772_160),
}  # fmt: skip


@pytest.mark.parametrize("name", PER_LAYER)
def test_numbers_that_differ_by_layer(name: str) -> None:
    """Exact bytes of models known to be counted wrongly when only the first layer is looked at."""
    (heads, k_dim, v_dim, n_ctx), windows, expected = PER_LAYER[name]
    assert kv_bytes(heads, k_dim, v_dim, n_ctx, "f16", "f16", windows) == expected


@pytest.mark.parametrize("n_seqs", [1, 3])
@pytest.mark.parametrize(("window", "rows"), [(1, 1), (24, 64), (512, 512), (1024, 32), (4096, 512), (2047, 511)])
@pytest.mark.parametrize("n_ctx", [256, 1536, 2048, 16384])
def test_windows_are_planned_as_they_are_allocated(n_ctx: int, window: int, rows: int, n_seqs: int) -> None:
    windows = [0 if i % 3 == 2 else window for i in range(7)]
    planned = n_seqs * kv_bytes([2] * 7, 64, 64, n_ctx, "q8_0", "f16", windows, rows)
    cache = KvCache(n_ctx, 7, 2, 64, "q8_0", "f16", n_seqs, windows=windows, rows=rows)
    assert planned == cache.n_bytes == sum(pool.bytes.nbytes for pool in cache.pools)
    assert planned <= n_seqs * kv_bytes([2] * 7, 64, 64, n_ctx, "q8_0", "f16")


def test_a_window_is_no_more_than_the_context() -> None:
    assert kv_bytes([4], 64, 64, 512, "f16", "f16", [4096]) == kv_bytes([4], 64, 64, 512, "f16", "f16")


@pytest.mark.parametrize(
    ("layers", "heads", "dim", "kind", "expected"),
    [(48, 4, 128, "f16", 96 * 1024), (48, 4, 128, "q8_0", 51 * 1024), (36, 8, 128, "q8_0", 78_336)],
)
def test_bytes_per_token_of_known_models(layers: int, heads: int, dim: int, kind: str, expected: int) -> None:
    """Qwen3-30B-A3B and Qwen3-4B; at 32768 positions the first takes 1,711,276,032 bytes in q8_0."""
    assert layers * heads * position_bytes(dim, dim, kind, kind) == expected
    assert kv_bytes([4] * 48, 128, 128, 32768, "q8_0", "q8_0") == 1_711_276_032
