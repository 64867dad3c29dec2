"""Activations as the matrix kernels want them. Not here: norms (norm.py), the weights' formats (quants/).

    "f32"   float32 [T][k]
    "q32"   int8 q [k/32][T][32] | f32 d [k/32][T] | f32 sum(q) [k/32][T],   x = d * q, d = max|x| / 127

Block-major, so that one decoded weight block meets all tokens of a tile one after the other; with T = 1 it is plain.
Sums are whole numbers below 2^24, kept as f32 because that saves each kernel a conversion per block and token.
"""

from engine.kernels.jit import inner
from engine.kernels.simd import (
    abs_f32x8, add_i32x8, f2i, f32, fma_f32x8, ld_f32x8, low8, max_f32x8, mul_f32x8, round_f32x8, sp_f32x8, st_f32,
    st_f32x8, st_i8x8, sum_f32x8, sum_i32x8, top_f32x8, z_f32x8,
)  # fmt: skip

FORMATS = ("f32", "q32")


def act_bytes(fmt: str, k: int, tokens: int) -> int:
    """Bytes of `tokens` activations of width k in a format."""
    return k * tokens * 4 if fmt == "f32" else k // 32 * tokens * 40


@inner
def quantise(x, k, act, T, t, b0, nb):
    """Columns of token t: x f32 [k] becomes blocks b0.. of an act whose rows have nb blocks in all."""
    q, d = act + (b0 * T + t) * 32, act + nb * T * 32 + (b0 * T + t) * 4
    s = d + nb * T * 4
    for _ in range(k // 32):
        x0, x1, x2, x3 = ld_f32x8(x), ld_f32x8(x + 32), ld_f32x8(x + 64), ld_f32x8(x + 96)
        top = top_f32x8(
            max_f32x8(max_f32x8(abs_f32x8(x0), abs_f32x8(x1)), max_f32x8(abs_f32x8(x2), abs_f32x8(x3)))
        )
        odd = fma_f32x8(x3, z_f32x8(), fma_f32x8(x2, z_f32x8(), fma_f32x8(x1, z_f32x8(), mul_f32x8(x0, z_f32x8()))))
        inverse = sp_f32x8(f32(127.0) / top if top > f32(0.0) else f32(0.0))
        i0, i1 = f2i(round_f32x8(mul_f32x8(x0, inverse))), f2i(round_f32x8(mul_f32x8(x1, inverse)))
        i2, i3 = f2i(round_f32x8(mul_f32x8(x2, inverse))), f2i(round_f32x8(mul_f32x8(x3, inverse)))
        st_i8x8(q, low8(i0))
        st_i8x8(q + 8, low8(i1))
        st_i8x8(q + 16, low8(i2))
        st_i8x8(q + 24, low8(i3))
        st_f32(d, top / f32(127.0) + sum_f32x8(odd))  # 0, or NaN: max skips a NaN, the answer must not
        st_f32(s, f32(sum_i32x8(add_i32x8(add_i32x8(i0, i1), add_i32x8(i2, i3)))))
        x += 128
        q += T * 32
        d += T * 4
        s += T * 4


@inner
def copy(x, k, out):
    """k floats, a multiple of 8."""
    for i in range(0, k * 4, 32):
        st_f32x8(out + i, ld_f32x8(x + i))


@inner
def emit(x, k, plain, blocks, T, t):
    """Token t's row in every format asked for: `plain` is an f32 act, `blocks` a q32 one, 0 = not wanted."""
    if plain != 0:
        copy(x, k, plain + t * k * 4)
    if blocks != 0:
        quantise(x, k, blocks, T, t, 0, k // 32)
