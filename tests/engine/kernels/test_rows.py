"""What happens to rows between products, against numpy in float64: curves, norms, biases, joins, caps."""

import math
from collections.abc import Callable
from threading import Thread

import numpy as np
import pytest

from engine.kernels import curves, step
from engine.kernels.hidden import hidden
from engine.kernels.jit import Kernel
from engine.kernels.logits import softened
from engine.kernels.matmul import matmul, scratch_bytes
from engine.kernels.norm import layer_norm
from engine.kernels.program import Buffer
from engine.kernels.residual import joined
from engine.quants import f32 as quant

Array = np.ndarray
ROWS = (1, 2, 7, 40)


def run(op: Kernel, words: list[int | float | Kernel], n_rows: int, threads: int = 2) -> None:
    """The op over n_rows rows, all of whose logits are wanted, the last first."""
    record, counter, block = np.zeros(16, np.int64), np.zeros(8, np.int64), np.zeros(step.N_WORDS, np.int64)
    out_rows = np.arange(n_rows, dtype=np.int64)[::-1].copy()
    block[[step.N_ROWS // 8, step.N_OUT // 8, step.OUT_ROWS // 8]] = n_rows, n_rows, out_rows.ctypes.data
    for i, word in enumerate(words, 1):
        if isinstance(word, float):
            record[i : i + 1].view(np.float32)[0] = word
        else:
            record[i] = word.address if isinstance(word, Kernel) else word
    record[15] = counter.ctypes.data
    _ = op.address
    team = [Thread(target=op, args=(record.ctypes.data, t, threads, block.ctypes.data)) for t in range(threads)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()


def values(n_rows: int, k: int, seed: int = 0) -> Buffer:
    buffer = Buffer(n_rows * k * 4)
    buffer.view(np.float32)[:] = np.random.default_rng(seed).normal(0.3, 2, n_rows * k)
    return buffer


def rows(buffer: Buffer, k: int, n_rows: int | None = None) -> Array:
    """As float64 (rows, k)."""
    return np.array(buffer.view(np.float32).reshape(-1, k)[:n_rows], np.float64)


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def normed(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + eps) * weight


BENT: dict[int, Callable[[Array], Array]] = {
    curves.PLAIN: lambda x: x,
    curves.SILU: lambda x: x / (1 + np.exp(np.minimum(-x, 700))),
    curves.GELU: gelu,
    curves.RELU2: lambda x: np.maximum(x, 0) ** 2,
    curves.ERF: np.vectorize(lambda x: x * math.erfc(-x / math.sqrt(2)) / 2),
}


@pytest.mark.parametrize("curve", BENT)
@pytest.mark.parametrize("n_rows", ROWS)
def test_hidden_rows_bend_and_are_normalised(curve: int, n_rows: int) -> None:
    k, threads = 72, 2
    x, weight, out = values(n_rows, k), values(1, k, 1), Buffer(max(n_rows, threads * n_rows) * k * 4)
    x.view(np.float32)[:8] = [-30, 30, -1e4, 1e4, 0, -0.0, 88, -88]
    before, scratch = rows(x, k), Buffer(threads * k * 4)
    bent = BENT[curve](before)
    for norm, wanted in ((0, bent), (weight.address, normed(bent, rows(weight, k), 1e-5))):
        copies = n_rows * k * 4 if n_rows <= step.REPLICATE else 0
        run(hidden, [x.address, k, out.address, 0, copies, scratch.address, k * 4, norm, 1e-5, curve], n_rows, threads)
        assert np.allclose(rows(out, k, n_rows), wanted, rtol=2e-6, atol=1e-6 if curve == curves.ERF else 2e-7)
    assert np.array_equal(rows(x, k), before)


def test_a_curve_shows_what_is_no_number() -> None:
    k = 8
    for curve in BENT:
        x, out, scratch = values(1, k), Buffer(2 * k * 4), Buffer(2 * k * 4)
        x.view(np.float32)[3] = np.nan
        run(hidden, [x.address, k, out.address, 0, k * 4, scratch.address, k * 4, 0, 0.0, curve], 1)
        assert np.isnan(out.view(np.float32)[3]) and np.isfinite(out.view(np.float32)[:3]).all()


@pytest.mark.parametrize("k", [8, 72, 256])
@pytest.mark.parametrize("n_rows", ROWS)
def test_a_layer_norm_centres_and_shifts(k: int, n_rows: int) -> None:
    x, weight, bias = values(n_rows, k), values(1, k, 1), values(1, k, 2)
    x.view(np.float32)[:] += 100  # a mean far from zero: squares of the values themselves would lose the spread
    out, scratch = Buffer(2 * max(n_rows, 2) * k * 4), Buffer(2 * k * 4)
    copies = n_rows * k * 4 if n_rows <= step.REPLICATE else 0
    words = [x.address, k * 4, weight.address, k, 1e-5, out.address, 0, copies, scratch.address, k * 4]
    exact = rows(x, k)
    exact = exact - exact.mean(-1, keepdims=True)
    exact = exact / np.sqrt(np.mean(exact**2, -1, keepdims=True) + 1e-5) * rows(weight, k) + rows(bias, k)
    for which, order in ((step.N_ROWS, 1), (step.N_OUT, -1)):
        run(layer_norm, [*words, which, bias.address], n_rows)
        assert np.allclose(rows(out, k, n_rows), exact[::order], rtol=1e-4, atol=5e-5)
    run(layer_norm, [*words, step.N_ROWS, 0], n_rows)
    assert np.allclose(rows(out, k, n_rows), exact - rows(bias, k), rtol=1e-4, atol=5e-5)


@pytest.mark.parametrize("n_rows", ROWS)
def test_a_block_joins_its_rows_normalised(n_rows: int) -> None:
    k = 72
    x, y, weight, scratch = values(n_rows, k), values(n_rows, k, 1), values(1, k, 2), Buffer(2 * k * 4)
    wanted = rows(x, k) + normed(rows(y, k), rows(weight, k), 1e-6)
    run(joined, [x.address, y.address, k, weight.address, 1e-6, scratch.address, k * 4], n_rows)
    assert np.allclose(rows(x, k), wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("n_rows", ROWS)
@pytest.mark.parametrize("add", [0, 1])
def test_a_bias_joins_a_product_once(n_rows: int, add: int) -> None:
    k, n, ld = 64, 200, 216
    w, x, bias = values(n, k), values(n_rows, k, 1), values(1, n, 2)
    y, scratch = values(n_rows, ld, 3), Buffer(2 * scratch_bytes(k * 32))
    wanted = rows(y, ld)
    wanted[:, 8 : 8 + n] = add * wanted[:, 8 : 8 + n] + rows(x, k) @ rows(w, k).T + rows(bias, n)
    run(matmul, [
        w.address, quant.rows, x.address, 0, k, y.address + 32, ld * 4, n // 8, add, scratch.address,
        scratch_bytes(k * 32), step.N_ROWS, 1, bias.address,
    ], n_rows)  # fmt: skip
    assert np.allclose(rows(y, ld), wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("scale", "cap"), [(1.0, 30.0), (0.125, 0.0), (2.0, 5.0)])
def test_logits_are_scaled_and_stay_under_the_cap(scale: float, cap: float) -> None:
    n, ld = 9001, 9008
    x = values(3, ld)
    x.view(np.float32)[:4] = [1e6, -1e6, 0, 200]
    wanted = rows(x, ld)[:, :n] * scale
    wanted = cap * np.tanh(wanted / cap) if cap else wanted
    run(softened, [x.address, ld, n, scale, cap], 3)
    assert np.allclose(rows(x, ld)[:, :n], wanted, rtol=1e-6, atol=3e-7 * (cap or 1))
