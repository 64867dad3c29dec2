"""Each type of keys and values equals its numpy twin bit for bit: stored bytes, scores, sums, whole rows."""

from itertools import product

import numpy as np
import pytest

from engine.cache.layout import row_bytes
from engine.kernels.attention import kv_module
from engine.kernels.kv import WIDTH
from tests.engine.kernels import kv_twins as twins
from tests.engine.kernels.layers import Layer

DIMS = [(kind, dim) for kind in twins.KINDS for dim in ((40, 64, 128) if kind.endswith("f16") else (32, 64, 128))]
SPANS = [(0, 1), (0, 7), (0, 77), (0, 256), (64, 65), (64, 200), (192, 256)]


def adversarial(head_dim: int, seed: int = 5) -> np.ndarray:
    """256 positions: noise, and rows of zeros, extremes, subnormals (of f16), equal magnitudes, all-greatest values."""
    x = np.random.default_rng(seed).standard_normal((256, head_dim)).astype(np.float32)
    x[3] = 0
    x[10] *= 60000 / np.abs(x[10]).max()
    x[11] *= 1e-7
    x[12] *= 1e-30
    x[13] = np.where(np.arange(head_dim) % 2, 2.5, -2.5)
    x[14] = 7
    x[15] = -7
    x[16, 1:] = 0
    x[17] = np.round(x[17] * 4) / 8  # ties
    return x


class Page:
    """One kv head's part of a page, written position by position."""

    def __init__(self, kind: str, x: np.ndarray, y: np.ndarray) -> None:
        self.module, self.head_dim = kv_module(kind), x.shape[1]
        n_bytes = 256 * row_bytes(kind, self.head_dim)
        self.k, self.v = (np.full(n_bytes, 0xFF, np.uint8) for _ in range(2))
        for r in np.random.default_rng(1).permutation(256):
            self.module.put_k(x[r].ctypes.data, self.head_dim, int(r), self.k.ctypes.data)
            self.module.put_v(y[r].ctypes.data, self.head_dim, int(r), self.v.ctypes.data)

    def scores(self, q: np.ndarray, first: int, n: int) -> np.ndarray:
        ready, out = np.zeros_like(q), np.full((WIDTH, 256), np.nan, np.float32)
        for a, b in zip(q, ready, strict=True):
            self.module.prepare(a.ctypes.data, self.head_dim, b.ctypes.data)
        size = self.head_dim * 4
        self.module.scores(
            self.k.ctypes.data, ready.ctypes.data, size, len(q), first, n, self.head_dim, out.ctypes.data
        )
        assert np.isnan(out[:, :first]).all() and np.isnan(out[len(q) :]).all()
        return out[: len(q), first:n]

    def mix(self, w: np.ndarray, first: int, n: int) -> np.ndarray:
        room, out = np.full((2 * WIDTH, 256), np.nan, np.float32), np.full((len(w), self.head_dim), np.nan, np.float32)
        room[: len(w), first:n] = w
        room[: len(w), n : (n + 7) // 8 * 8] = 0
        self.module.mix(
            self.v.ctypes.data, room.ctypes.data, len(w), first, n, self.head_dim, out.ctypes.data, out.strides[0]
        )
        return out


@pytest.mark.parametrize(("kind", "head_dim"), DIMS)
def test_stored_bytes_scores_and_sums_are_the_twins(kind: str, head_dim: int) -> None:
    x, y = adversarial(head_dim), adversarial(head_dim, 6)
    page = Page(kind, x, y)
    assert np.array_equal(page.k, twins.pack_k(kind, x))
    assert np.array_equal(page.v, twins.pack_v(kind, y))
    rng = np.random.default_rng(7)
    queries = rng.standard_normal((WIDTH, head_dim)).astype(np.float32)
    weights = rng.random((WIDTH, 256), np.float32)
    weights[:, ::9] = 0
    wanted = twins.scores(kind, x, queries)
    for first, n in SPANS:
        sums = twins.mix(kind, y[first:n], weights[:, first:n])
        for n_q in range(1, WIDTH + 1):
            assert np.array_equal(page.scores(queries[:n_q], first, n), wanted[:n_q, first:n]), (first, n, n_q)
            assert np.array_equal(page.mix(weights[:n_q, first:n], first, n), sums[:n_q]), (first, n, n_q)


@pytest.mark.parametrize(("k", "v"), list(product(twins.KINDS, twins.KINDS)))
def test_a_row_of_attention_is_the_twin_for_every_pair_of_types(k: str, v: str) -> None:
    layer = Layer(5, 64, k, v, n_kv=1)
    x = layer.inputs(300)
    got = layer.fill(x, 300)
    q, keys, values = layer.turned[:, :320].reshape(300, 5, 64), layer.turned[:, 320:384], layer.turned[:, 384:]
    for i in (0, 6, 255, 256, 299):
        wanted = twins.row((k, v), q[i], keys[: i + 1], values[: i + 1])
        assert np.array_equal(got[i], wanted.ravel()), f"position {i}"


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_values_beyond_f16_are_kept(kind: str) -> None:
    layer = Layer(1, 32, kind, kind, n_kv=1)
    x = layer.inputs(9)
    x[:, 64:] *= 1e6
    got = layer.fill(x, 9)
    assert np.isfinite(got).all() and np.abs(got).max() > 65504 * 2
