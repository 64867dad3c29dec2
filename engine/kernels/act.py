"""Activations as the matrix kernels want them. Not here: norms (norm.py), the weights' formats (quants/).

    "f32"   float32 [T][k]
    "q32"   twice, coarse then fine:  [k/32][T] blocks of 48 bytes

    block   | 32 int8 q | d f32 | -sum(q) f32 | -sum(q) i32 | -32 sum(q[:16]) i32, its last bit: is there a fine half? |
    x = d * q + d' * q',   d = max|x| / 127,   d' = d / 254

One level of int8 costs accuracy where a block's step is large: at the few blocks that hold outliers. Those get a second
level: REFINE times the row's mean step is the border. Measured on SmolLM2 Q4_1, mean KL to an exact float32 forward:
0.0036 with one level (llama.cpp's way), 0.0006 with the fine half for 14% of the blocks, 0.0002 for half of them.

Block-major, so that one decoded weight block meets all tokens of a tile one after the other; with T = 1 it is plain.
Sums are kept with their sign turned, in the forms in which an offset of the weights is taken away.
"""

from engine.kernels.chunks import rows_of
from engine.kernels.jit import inner, op
from engine.kernels.simd import (
    abs_f32x8, add_i32x8, f2i, f32, fma_f32x8, i2f, i32_of, ld_f32, ld_f32x8, ld_i64, low8, max_f32x8, mul_f32x8,
    round_f32x8, sp_f32x8, st_f32, st_f32x8, st_i8x8, st_i32, sum_f32x8, sum_i32x8, top_f32x8, z_f32x8,
)  # fmt: skip
from engine.kernels.step import N_ROWS, REPLICATE

import numpy as np  # isort: skip

FORMATS = ("f32", "q32")
BLOCK = 48  # bytes of a q32 block, and where its parts stand
SCALE, LESS_FLOAT, LESS, LESS_FIRST = 32, 36, 40, 44
REFINE = np.float32(1.5)
FINE = np.float32(254.0)  # fine steps in a coarse one: what is left over is at most half a coarse step


def act_bytes(fmt: str, k: int, tokens: int) -> int:
    """Bytes of `tokens` activations of width k in a format."""
    return k * tokens * 4 if fmt == "f32" else k // 32 * tokens * 2 * BLOCK


@inner
def _top(x):
    """The greatest size among 32 floats (a NaN is skipped)."""
    x0, x1, x2, x3 = ld_f32x8(x), ld_f32x8(x + 32), ld_f32x8(x + 64), ld_f32x8(x + 96)
    return top_f32x8(max_f32x8(max_f32x8(abs_f32x8(x0), abs_f32x8(x1)), max_f32x8(abs_f32x8(x2), abs_f32x8(x3))))


@inner
def _odd(x):
    """0, or NaN when one of 32 floats is NaN or infinite: the answer must not hide what max skips."""
    z = z_f32x8()
    a = fma_f32x8(ld_f32x8(x + 32), z, mul_f32x8(ld_f32x8(x), z))
    return sum_f32x8(fma_f32x8(ld_f32x8(x + 96), z, fma_f32x8(ld_f32x8(x + 64), z, a)))


@inner
def _eight(x, inverse, step, q, left):
    """Eight floats to int8 at q and what they leave over to `left`; returns the integers."""
    v = ld_f32x8(x)
    i = f2i(round_f32x8(mul_f32x8(v, inverse)))
    st_i8x8(q, low8(i))
    st_f32x8(left, fma_f32x8(i2f(i), step, v))
    return i


@inner
def _level(x, inverse, step, block, left, is_fine):
    """One level of one block; x and left may be the same 32 floats."""
    inv, minus = sp_f32x8(inverse), sp_f32x8(-step)
    a = add_i32x8(_eight(x, inv, minus, block, left), _eight(x + 32, inv, minus, block + 8, left + 32))
    b = add_i32x8(_eight(x + 64, inv, minus, block + 16, left + 64), _eight(x + 96, inv, minus, block + 24, left + 96))
    first, second = sum_i32x8(a), sum_i32x8(b)
    st_f32(block + SCALE, step)
    st_f32(block + LESS_FLOAT, f32(-(first + second)))
    st_i32(block + LESS, -(first + second))
    st_i32(block + LESS_FIRST, -32 * first + is_fine)


@inner
def quantise(x, k, act, T, t):
    """Token t of T: f32 x [k], which is overwritten with what int8 leaves over."""
    nb = k // 32
    block, fine = act + t * BLOCK, nb * T * BLOCK
    mean = f32(0.0)
    for b in range(nb):
        mean += _top(x + b * 128)
    border = mean / f32(nb) * REFINE
    for b in range(nb):
        p = x + b * 128
        top, odd = _top(p), _odd(p)
        step = top / f32(127.0)
        inverse = f32(127.0) / top if top > f32(0.0) else f32(0.0)
        is_fine = i32_of(1 if top > border else 0)
        _level(p, inverse, step, block, p, is_fine)
        if is_fine:
            _level(p, f32(127.0) * FINE / top, step / FINE, block + fine, p, i32_of(0))
        st_f32(block + SCALE, ld_f32(block + SCALE) + odd)
        block += T * BLOCK


@inner
def copy(x, k, out):
    """k floats, a multiple of 8."""
    for i in range(0, k * 4, 32):
        st_f32x8(out + i, ld_f32x8(x + i))


@inner
def emit(x, k, plain, blocks, T, t):
    """Token t's row in every format asked for: `plain` is an f32 act, `blocks` a q32 one, 0 = not wanted. Spoils x."""
    if plain != 0:
        copy(x, k, plain + t * k * 4)
    if blocks != 0:
        quantise(x, k, blocks, T, t)


@op
def activate(o, tid, nth, st):
    """Rows of floats to activations.

    words: 1 x f32 [rows][k]; 2 k; 3 act f32 or 0; 4 act q32 or 0; 5 bytes between threads' copies of either; 6 scratch;
    7 bytes between threads; 15 counter.
    """
    x, k, plain, blocks, copies = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32), ld_i64(o + 40)
    scratch, T = ld_i64(o + 48) + tid * ld_i64(o + 56), ld_i64(st + N_ROWS)
    if T <= REPLICATE:
        plain += tid * copies if plain else 0
        blocks += tid * copies if blocks else 0
    first, end = rows_of(ld_i64(o + 120), T, nth, 0)
    while first < end:
        for t in range(first, end):
            copy(x + t * k * 4, k, scratch)  # with few rows all threads read x, so none may spoil it
            emit(scratch, k, plain, blocks, T, t)
        first, end = rows_of(ld_i64(o + 120), T, nth, end)
