"""Rotation against float64 complex numbers, and the table's scalings against their formulas. Not here: storing keys."""

import math

import numpy as np
import pytest

from engine.kernels import step
from engine.kernels.rope import llama3_factors, rope_q, rope_table
from engine.models.shape import RopeScaling


def rotated(x: np.ndarray, angles: np.ndarray, neox: bool) -> np.ndarray:
    """x (heads, head_dim) turned by angles (rope_dim / 2,) as complex numbers."""
    out, n = x.astype(np.float64), 2 * len(angles)
    first, second = (slice(0, n // 2), slice(n // 2, n)) if neox else (slice(0, n, 2), slice(1, n, 2))
    z = (out[:, first] + 1j * out[:, second]) * np.exp(1j * angles)
    out[:, first], out[:, second] = z.real, z.imag
    return out


@pytest.mark.parametrize("neox", [False, True])
@pytest.mark.parametrize(("head_dim", "rope_dim"), [(32, 32), (64, 64), (128, 128), (64, 32), (64, 20), (40, 6)])
def test_queries_turn_by_their_position(neox: bool, head_dim: int, rope_dim: int) -> None:
    rng = np.random.default_rng(1)
    n_heads, n_rows, ld = 9, 5, 9 * head_dim + 16
    qkv = rng.standard_normal((n_rows, ld)).astype(np.float32)
    before = qkv.copy()
    table = rope_table(600, rope_dim, 10000.0)
    positions = np.array([0, 1, 7, 300, 599])
    block, counter = np.zeros(step.N_WORDS, np.int64), np.zeros(1, np.int64)
    block[step.N_ROWS // 8], block[step.POSITIONS // 8] = n_rows, positions.ctypes.data
    record = np.zeros(16, np.int64)
    scale = np.float32(1 / math.sqrt(head_dim))
    record[1:9] = qkv.ctypes.data, ld, n_heads, head_dim, rope_dim, table.ctypes.data, neox, int(scale.view(np.int32))
    record[15] = counter.ctypes.data
    rope_q(record.ctypes.data, 0, 1, block.ctypes.data)
    for row, position in enumerate(positions):
        angles = position * 10000.0 ** (-np.arange(0, rope_dim, 2) / rope_dim)
        heads = before[row, : n_heads * head_dim].reshape(n_heads, head_dim)
        got = qkv[row, : n_heads * head_dim].reshape(n_heads, head_dim)
        assert np.abs(got - rotated(heads, angles, neox) * scale).max() < 2e-6
    assert np.array_equal(qkv[:, n_heads * head_dim :], before[:, n_heads * head_dim :])


def angles(scaling=None, freq_factors=None, rope_dim=64, base=10000.0) -> tuple[np.ndarray, np.ndarray]:
    """Angle per position of each pair (small, so that it can be read from position 1), and the vectors' length."""
    table = rope_table(2, rope_dim, base, scaling, freq_factors)[1].reshape(-1, 2).astype(np.float64)
    return np.arctan2(table[:, 1], table[:, 0]), np.hypot(table[:, 0], table[:, 1])


def test_linear_scaling_divides_every_angle() -> None:
    plain, _ = angles()
    scaled, length = angles(RopeScaling("linear", factor=4.0))
    assert np.allclose(scaled, plain / 4, rtol=1e-5, atol=0) and np.allclose(length, 1)


def test_yarn_keeps_fast_pairs_divides_slow_ones_and_lengthens() -> None:
    yarn = RopeScaling("yarn", factor=8.0, n_ctx_orig=2048, ext_factor=1.0)
    plain, _ = angles()
    scaled, length = angles(yarn)
    assert np.allclose(length, 1 + 0.1 * math.log(8), rtol=1e-6)
    # The dims whose waves turn beta_fast and beta_slow times in the old context bound the ramp.
    dim = lambda turns: 64 * math.log(2048 / (turns * 2 * math.pi)) / (2 * math.log(10000.0))  # noqa: E731
    low, high = math.floor(dim(32)), math.ceil(dim(1))
    assert (low, high) == (8, 21)
    assert np.allclose(scaled[: low + 1], plain[: low + 1], rtol=1e-5)
    assert np.allclose(scaled[high:], plain[high:] / 8, rtol=1e-5)
    ramp = (np.arange(low, high + 1) - low) / (high - low)
    mixed = plain[low : high + 1] * (1 - ramp) + plain[low : high + 1] / 8 * ramp
    assert np.allclose(scaled[low : high + 1], mixed, rtol=1e-5)
    scaled, length = angles(RopeScaling("yarn", factor=8.0, n_ctx_orig=2048, ext_factor=0.0, attn_factor=1.25))
    assert np.allclose(scaled, plain / 8, rtol=1e-5) and np.allclose(length, 1.25)


def test_llama3_factors_leave_short_waves_and_divide_long_ones() -> None:
    factors = llama3_factors(128, 500000.0, 8.0, 8192)
    wave = 2 * math.pi * 500000.0 ** (np.arange(0, 128, 2) / 128)
    assert np.all(factors[wave < 8192 / 4] == 1) and np.allclose(factors[wave > 8192 / 1], 8)
    between = (wave >= 2048) & (wave <= 8192)
    smooth = (8192 / wave[between] - 1) / 3
    assert np.allclose(1 / factors[between], (1 - smooth) / 8 + smooth)
    plain, _ = angles(rope_dim=128, base=500000.0)
    scaled, _ = angles(RopeScaling("llama3", factor=8.0, n_ctx_orig=8192), rope_dim=128, base=500000.0)
    by_tensor, _ = angles(None, factors.astype(np.float32), rope_dim=128, base=500000.0)
    assert np.allclose(scaled, plain / factors, rtol=1e-5) and np.allclose(by_tensor, scaled, rtol=1e-5)
