"""Attention over real pages: against float64 softmax, and the same bits for every grouping. Not here: pages."""

import math

import numpy as np
import pytest

from tests.engine.kernels.layers import Layer

SHAPES = [(1, 32), (1, 128), (2, 64), (3, 64), (3, 32), (4, 128), (4, 64), (7, 64)]  # query heads per kv head, head_dim
KINDS = [("f16", "f16"), ("q8_0", "q8_0"), ("q8_0", "f16"), ("f16", "q8_0")]


def turned(x: np.ndarray, head_dim: int) -> np.ndarray:
    """x (positions, heads, head_dim) in float64, rotated by position."""
    z = x[..., 0::2] + 1j * x[..., 1::2].astype(np.float64)
    angle = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(0, head_dim, 2) / head_dim)
    z = z * np.exp(1j * angle)[:, None]
    return np.stack([z.real, z.imag], -1).reshape(x.shape)


def kept(x: np.ndarray, kind: str, scale: type = np.float16) -> np.ndarray:
    """What a cache type keeps of x."""
    if kind == "f32":
        return x.astype(np.float32).astype(np.float64)
    if kind == "f16":
        return x.astype(np.float16).astype(np.float64)
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    d = (np.abs(blocks).max(-1, keepdims=True) / 127).astype(np.float32)
    q = np.rint(blocks / np.where(d == 0, 1, d))
    return (q * d.astype(scale).astype(np.float64)).reshape(x.shape)


def expected(layer: Layer, x: np.ndarray) -> np.ndarray:
    """Causal softmax attention in float64 over keys and values as the cache keeps them."""
    hd, vd, nh, nkv = layer.head_dim, layer.v_dim, layer.n_heads, layer.n_kv
    q = turned(x[:, : nh * hd].reshape(-1, nh, hd), hd) / math.sqrt(hd)
    q = kept(q, layer.k, np.float32) if layer.k == "q8_0" else q
    k = kept(turned(x[:, nh * hd : (nh + nkv) * hd].reshape(-1, nkv, hd), hd), layer.k)
    v = kept(x[:, (nh + nkv) * hd :].reshape(-1, nkv, vd), layer.v)
    out = np.zeros((len(x), nh, vd))
    for h in range(nh):
        s = q[:, h] @ k[:, h * nkv // nh].T
        s[np.triu_indices(len(x), 1)] = -np.inf
        p = np.exp(s - s.max(1, keepdims=True))
        out[:, h] = p / p.sum(1, keepdims=True) @ v[:, h * nkv // nh]
    return out.reshape(len(x), -1)


@pytest.mark.parametrize("head_dim", [8, 16, 32, 40, 64, 128])
@pytest.mark.parametrize("group", [1, 2, 3, 4, 7])
def test_prompt_in_one_step_is_softmax_attention(group: int, head_dim: int) -> None:
    layer = Layer(group, head_dim)
    x = layer.inputs(270)
    # 2e-3: a key's last f16 bit may fall the other way after the rotation in f32
    assert np.abs(layer.fill(x, 270) - expected(layer, x)).max() < 2e-3


@pytest.mark.parametrize(("group", "head_dim"), SHAPES)
@pytest.mark.parametrize(("k", "v"), KINDS[1:])
def test_quantised_caches_attend_over_what_they_keep(group: int, head_dim: int, k: str, v: str) -> None:
    layer = Layer(group, head_dim, k, v)
    x = layer.inputs(270)
    x[:, -40:-8] = 0  # a block of nothing
    # a byte may fall the other way after the rotation in f32: one step of 1/127 in one of head_dim products
    assert np.abs(layer.fill(x, 270) - expected(layer, x)).max() < 1e-2


@pytest.mark.parametrize(("group", "head_dim"), SHAPES)
@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_a_row_has_the_same_bits_in_every_grouping(group: int, head_dim: int, kind: str) -> None:
    layer = Layer(group, head_dim, kind, kind)
    x = layer.inputs(530)
    whole = layer.fill(x, 530)
    assert np.isfinite(whole).all()
    for chunk, n_threads in [(64, 3), (7, 1), (3, 2), (530, 3)]:
        assert np.array_equal(layer.fill(x, chunk, n_threads), whole), f"{chunk} rows a step, {n_threads} threads"
    few = [0, 1, 2, 6, 7, 8, 9, 63, 64, 65, 254, 255, 256, 257, 300, 510, 511, 512, 513, 528]
    sequence = layer.cache.open()
    sequence.reserve(530)
    layer.run([(sequence, i, r) for i, r in enumerate(x)])
    for i in few:  # rows again, one and two a step: this is decode
        assert np.array_equal(layer.run([(sequence, i, x[i])], 2)[0], whole[i]), f"position {i}"
        assert np.array_equal(layer.run([(sequence, i + j, x[i + j]) for j in (0, 1)]), whole[i : i + 2])


@pytest.mark.parametrize(("group", "n_kv", "head_dim", "v_dim"), [(1, 3, 96, 64), (50, 1, 40, 32), (7, 2, 32, 128)])
@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_values_of_another_width_than_keys(group: int, n_kv: int, head_dim: int, v_dim: int, kind: str) -> None:
    """Also with so many queries of one head that a tile of a row is several units."""
    if kind == "q8_0" and head_dim % 32:
        head_dim = 64
    layer = Layer(group, head_dim, kind, kind, n_kv, v_dim=v_dim)
    x = layer.inputs(270)
    whole = layer.fill(x, 270)
    assert np.abs(whole - expected(layer, x)).max() < (1e-2 if kind == "q8_0" else 2e-5)
    assert np.array_equal(layer.fill(x, 2, 3)[-20:], whole[-20:])


def test_rows_of_several_sequences_ride_together_unchanged() -> None:
    layer = Layer(3, 64)
    a, b, c = layer.inputs(300, 1), layer.inputs(520, 2), layer.inputs(40, 3)
    alone = [layer.fill(x, 64) for x in (a, b, c)]
    sequences = [layer.cache.open() for _ in range(3)]
    for s, x in zip(sequences, (a, b, c), strict=True):
        s.reserve(len(x))
        layer.run([(s, i, r) for i, r in enumerate(x[: len(x) - 5])])
    rows = [(s, len(x) - 5 + i, x[len(x) - 5 + i]) for s, x in zip(sequences, (a, b, c), strict=True) for i in range(5)]
    for n_threads in (1, 3):
        together = layer.run(rows, n_threads)
        assert np.array_equal(together, np.concatenate([y[-5:] for y in alone]))
    assert np.array_equal(layer.run([rows[0], rows[10]]), np.stack([alone[0][-5], alone[2][-5]]))


def test_a_fork_reads_shared_pages_and_keeps_its_own_tail() -> None:
    layer = Layer(3, 64)
    a, b = layer.inputs(400, 1), layer.inputs(400, 2)
    b[:300] = a[:300]
    first, alone = layer.cache.open(), [layer.fill(x, 400) for x in (a, b)]
    first.reserve(300)
    layer.run([(first, i, a[i]) for i in range(300)])
    first.advance(300)
    second = first.fork()
    for s, x, y in ((first, a, alone[0]), (second, b, alone[1])):
        s.reserve(100)
        assert np.array_equal(layer.run([(s, i, x[i]) for i in range(300, 400)]), y[300:])
    assert first.pages[0] == second.pages[0] and first.pages[1] != second.pages[1]


@pytest.mark.parametrize("kind", ["f16", "q8_0", "q4_0"])
def test_what_a_used_page_still_holds_is_never_seen(kind: str) -> None:
    layer = Layer(3, 32, kind, kind)
    x = layer.inputs(270)
    clean = layer.fill(x, 270)
    layer.cache.pools[0].bytes[:] = 0xFF  # NaN in every float
    assert np.array_equal(layer.fill(x, 270), clean)
    layer.cache.pools[0].bytes[:] = 0xFF
    assert np.array_equal(layer.fill(x[:12], 1), clean[:12])


def test_extreme_scores_neither_overflow_nor_mix_in_others() -> None:
    layer = Layer(1, 32, n_kv=1)
    x = layer.inputs(40) * np.float32(0.01)
    x[:, :64] *= 1e6  # queries and keys: scores up to about 1e9
    x[7, 64:] = 123.0
    got = layer.fill(x, 40)
    assert np.isfinite(got).all()
    x[:, :32] = 0  # and none at all: the mean of the values
    mean = np.cumsum(x[:, 64:].astype(np.float16).astype(np.float64), 0) / np.arange(1, 41)[:, None]
    assert np.abs(layer.fill(x, 40) - mean).max() < 1e-4


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0", "q4_0"])
@pytest.mark.parametrize("column", [32, 63, 64, 95])
def test_nan_in_a_key_or_a_value_is_not_hidden(kind: str, column: int) -> None:
    layer = Layer(1, 32, kind, kind, n_kv=1)
    x = layer.inputs(10)
    x[4, column] = np.nan
    got = layer.fill(x, 10)
    assert np.isfinite(got[:4]).all() and np.isnan(got[4:]).any(axis=1).all()
