"""Q8_0: 32 weights in 34 bytes, w = d * q with q in -128..127. Not here: how blocks are walked (walk.py).

    file block   | d f16 | 32 bytes q |
    panel block  | d[8] f16 | 8 groups g of 32 bytes: byte 4r + c of group g is row r's q[4g + c] |

Per block and row: acc = fma(d * dx, sum(q * x), acc), x the block's int8 activations, dx their scale.
"""

from engine.kernels.dots import dot_bias, dot_i8, unsigned_i8
from engine.kernels.act import SCALE, SUM
from engine.kernels.jit import inner, kernel
from engine.kernels.simd import (
    bc4_i8x32, bc_f32x8, column_f16, f32, fma_f32x8, i2f, ld_f16, ld_f16x8, ld_i8, ld_i8x32, mul_f32x8, st_f32,
    sub_f32x8, sums8, z_i32x8,
)  # fmt: skip
from engine.quants.dot32 import eight_vectors
from engine.quants.panels import pack_shorts, pack_words
from engine.quants.walk import walks

ACT = "q32"
ROW, PANEL, SUBS = 34, 272, 1


@inner
def head(w):
    return ld_f16x8(w)


@inner
def head_rows(w, stride):
    return column_f16(w, stride)


@inner
def scales(h, _j):
    return h


@inner
def values(w, _j):
    return eight_vectors(w + 16)


@inner
def _pair(v0, v1, x, sums):
    return dot_i8(dot_i8(sums, unsigned_i8(v0), bc4_i8x32(x), v0), unsigned_i8(v1), bc4_i8x32(x + 4), v1)


@inner
def total(v, _c, x):
    """As dot_i8 leaves it; LLVM takes the unsigned forms out of a tile's loop over tokens."""
    return _pair(
        v[6], v[7], x + 24, _pair(v[4], v[5], x + 16, _pair(v[2], v[3], x + 8, _pair(v[0], v[1], x, z_i32x8())))
    )


@inner
def _row(w, a):
    v = ld_i8x32(w + 2)
    return dot_i8(z_i32x8(), unsigned_i8(v), a, v)


@inner
def total_rows(w, stride, _c, _j, x):
    a, u = ld_i8x32(x), w + 4 * stride
    return sums8(
        _row(w, a), _row(w + stride, a), _row(w + 2 * stride, a), _row(w + 3 * stride, a),
        _row(u, a), _row(u + stride, a), _row(u + 2 * stride, a), _row(u + 3 * stride, a),
    )  # fmt: skip


@inner
def join(acc, total, c, x):
    centred = sub_f32x8(i2f(total), dot_bias(x + SUM))  # whole numbers below 2^24: exact
    return fma_f32x8(mul_f32x8(c, bc_f32x8(x + SCALE)), centred, acc)


@inner
def pack_block(w, stride, out):
    pack_shorts(w, stride, out)
    pack_words(w + 2, stride, 8, out + 16)


@kernel(3)
def unpack_row(row, n, out):
    for _ in range(n):
        d = ld_f16(row)
        for j in range(32):
            st_f32(out + j * 4, d * f32(ld_i8(row + 2 + j)))
        row += ROW
        out += 128


panels, rows, pack = walks(globals())
