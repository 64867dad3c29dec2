"""Rotary positions: the table of cosines and sines, and the rotation of queries and keys. Not here: where keys go.

    table   float32 (n_ctx, rope_dim): cos, sin, cos, sin ...; pair i turns by position * base^(-2i / rope_dim)
    norm    neighbours (2i, 2i+1) turn together        llama
    neox    halves     (i, i + rope_dim/2) do          qwen2, phi, gemma

Scalings follow the papers as llama.cpp and transformers compute them: linear divides every angle by `factor`; yarn
does so for slow pairs, leaves fast ones, mixes between and lengthens the vectors; llama3 divides by a factor per pair,
which GGUF files carry as the tensor rope_freqs.weight (`freq_factors`); longrope (Ding et al. 2024, arXiv:2402.13753)
has other such factors and lengthens the vectors.

Products and sums are rounded one by one, without fused multiply-add: the same bits on every CPU.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.kernels.jit import inner, op
from engine.kernels.norm import normalise
from engine.kernels.simd import (
    f32, f32x8, i64, ir, ld_f32, ld_f32x8, ld_i64, make, mul_f32x8, read, shuffle, sp_f32x8, st_f32, st_f32x8, void,
    write,
)  # fmt: skip
from engine.kernels.step import N_ROWS, POSITIONS
from engine.kernels.sync import atomic_add

HEADS = 8  # heads of one unit of rope_q


def llama3_factors(
    rope_dim: int, base: float, factor: float, n_ctx_orig: int, low: float = 1.0, high: float = 4.0
) -> NDArray[np.float64]:
    """Divisors per pair, (rope_dim / 2,): 1 for wavelengths under n_ctx_orig / high, `factor` over n_ctx_orig / low."""
    turns = n_ctx_orig * base ** (-np.arange(0, rope_dim, 2) / rope_dim) / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return 1.0 / ((1.0 - smooth) / factor + smooth)


def _yarn_share(
    rope_dim: int, base: float, n_ctx_orig: int, beta_fast: float, beta_slow: float, is_rounded: bool
) -> NDArray[np.float64]:
    """How much of each pair's angle stays unscaled: 1 for pairs that turn often in the old context, 0 for slow ones; a
    ramp between, from whole pair to whole pair if it `is_rounded`."""

    def pair(n_turns: float) -> float:
        return rope_dim * math.log(n_ctx_orig / (n_turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(beta_fast), pair(beta_slow)
    if is_rounded:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(0, low), min(rope_dim - 1, high)
    return 1.0 - np.clip((np.arange(rope_dim // 2) - low) / max(0.001, high - low), 0.0, 1.0)


def rope_table(
    n_ctx: int, rope_dim: int, base: float, scaling: Any = None, freq_factors: NDArray[Any] | None = None
) -> NDArray[np.float32]:
    """(n_ctx, rope_dim) float32 of (cos, sin) pairs, computed in float64.

    `scaling` has the fields of engine.models.shape.RopeScaling (None = none); `freq_factors` (rope_dim / 2,) divides
    each pair's angle. Asserts on shapes: files are checked where they are read.
    """
    assert rope_dim % 2 == 0, f"rope_dim {rope_dim} is odd"
    kind = getattr(scaling, "type", "none") if scaling is not None else "none"
    freq, length = base ** (-np.arange(0, rope_dim, 2) / rope_dim), 1.0
    if freq_factors is not None:
        assert len(freq_factors) == rope_dim // 2, f"{len(freq_factors)} freq_factors for {rope_dim // 2} pairs"
        freq = freq / np.asarray(freq_factors, np.float64)
    if kind == "linear":
        freq = freq / scaling.factor
    elif kind == "yarn":
        keep = _yarn_share(
            rope_dim, base, scaling.n_ctx_orig, scaling.beta_fast, scaling.beta_slow, scaling.is_rounded
        )  # fmt: skip
        keep = keep * scaling.ext_factor
        freq = freq / scaling.factor * (1.0 - keep) + freq * keep
        length = scaling.attn_factor * (1.0 + 0.1 * math.log(scaling.factor) if scaling.ext_factor else 1.0)
    elif kind == "llama3":
        if freq_factors is None:
            freq = freq / llama3_factors(rope_dim, base, scaling.factor, scaling.n_ctx_orig)
    elif kind == "longrope":
        assert freq_factors is not None, "longrope is its divisors"
        length = scaling.attn_factor
    else:
        assert kind == "none", f"rope scaling {kind} is unknown here"
    angle = np.arange(n_ctx, dtype=np.float64)[:, None] * freq
    return (np.stack([np.cos(angle), np.sin(angle)], -1) * length).astype(np.float32).reshape(n_ctx, rope_dim)


def _turn_pairs(b: Any, x: Any, t: Any) -> Any:
    """Four (x, y) pairs by four (cos, sin): x' = x c - y s, y' = y c + x s."""
    even, odd = [i & 6 for i in range(8)], [i | 1 for i in range(8)]
    sign = ir.Constant(f32x8.ir, [-1.0, 1.0] * 4)
    other = b.fmul(shuffle(b, x, [i ^ 1 for i in range(8)]), b.fmul(shuffle(b, t, odd), sign))
    return b.fadd(b.fmul(x, shuffle(b, t, even)), other)


def _turn_halves(b: Any, x: Any, y: Any, t: Any) -> None:
    """Eight x at one address with eight y at another by eight (cos, sin) at a third."""
    near, far = read(b, t, f32x8.ir), read(b, b.add(t, ir.Constant(t.type, 32)), f32x8.ir)
    c, s = shuffle(b, near, range(0, 16, 2), far), shuffle(b, near, range(1, 16, 2), far)
    p, q = read(b, x, f32x8.ir), read(b, y, f32x8.ir)
    write(b, x, b.fsub(b.fmul(p, c), b.fmul(q, s)))
    write(b, y, b.fadd(b.fmul(q, c), b.fmul(p, s)))


_pairs = make(f32x8, (f32x8, f32x8), _turn_pairs)
_halves = make(void, (i64, i64, i64), _turn_halves)
f32_bits = make(f32, (i64,), lambda b, x: b.bitcast(b.trunc(x, ir.IntType(32)), ir.FloatType()))


@inner
def _turn(x, y, t):
    p, q, c, s = ld_f32(x), ld_f32(y), ld_f32(t), ld_f32(t + 4)
    st_f32(x, p * c - q * s)
    st_f32(y, q * c + p * s)


@inner
def rope(x, t, rope_dim, neox):
    """Rotate the first rope_dim floats at x, in place, by the table row at t."""
    if neox != 0:
        half, i = rope_dim // 2, 0
        while i + 8 <= half:
            _halves(x + i * 4, x + (half + i) * 4, t + i * 8)
            i += 8
        while i < half:
            _turn(x + i * 4, x + (half + i) * 4, t + i * 8)
            i += 1
    else:
        i = 0
        while i + 8 <= rope_dim:
            st_f32x8(x + i * 4, _pairs(ld_f32x8(x + i * 4), ld_f32x8(t + i * 4)))
            i += 8
        while i < rope_dim:
            _turn(x + i * 4, x + i * 4 + 4, t + i * 4)
            i += 2


@op
def rope_q(o, tid, nth, st):
    """Normalise (RMS, if there is a weight), rotate and scale all query heads in place.

    words: 1 qkv f32 [rows][ld]; 2 ld (floats); 3 n_heads; 4 head_dim (multiple of 8); 5 rope_dim (even, <= head_dim);
    6 table; 7 neox (0 norm, 1 neox); 8 scale as float32 bits (1 / sqrt(head_dim)); 9 weight of the norm f32 [head_dim]
    or 0; 10 its eps as float32; 11 where in a head the floats that turn begin; 15 counter.
    """
    weight, eps, begin = ld_i64(o + 72), ld_f32(o + 80), ld_i64(o + 88) * 4
    qkv, ld, n_heads, head_dim = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32)
    rope_dim, table, neox, scale = ld_i64(o + 40), ld_i64(o + 48), ld_i64(o + 56), sp_f32x8(f32_bits(ld_i64(o + 64)))
    positions, counter = ld_i64(st + POSITIONS), ld_i64(o + 120)
    groups = (n_heads + HEADS - 1) // HEADS
    n_units = ld_i64(st + N_ROWS) * groups
    while True:
        c = atomic_add(counter, 1)
        if c >= n_units:
            return
        row, first = c // groups, c % groups * HEADS
        t = table + ld_i64(positions + row * 8) * rope_dim * 4
        for h in range(first, min(first + HEADS, n_heads)):
            q = qkv + (row * ld + h * head_dim) * 4
            if weight != 0:
                normalise(q, weight, head_dim, eps, q)
            rope(q + begin, t, rope_dim, neox)
            for i in range(0, head_dim * 4, 32):
                st_f32x8(q + i, mul_f32x8(ld_f32x8(q + i), scale))
