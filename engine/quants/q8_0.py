"""Q8_0: 32 weights in 34 bytes, w = d * q with q in -128..127. Not here: how blocks are walked (walk.py).

    file block   | d f16 | 32 bytes q |
    panel block  | d[8] f16 | 8 groups g of 32 bytes: byte 4r + c of group g is row r's q[4g + c] |

Per block and row: acc = fma(d * dx, sum(q * x), acc), x the block's int8 activations, dx their scale.
"""

from engine.kernels.dots import OWED, dot_i8, row_i8
from engine.kernels.jit import inner, kernel
from engine.kernels.simd import (
    add_i32x8, f32, ld_f16, ld_i8, ld_i8x32, st_f32, sums8,
)  # fmt: skip
from engine.kernels.wide import zero_i32
from engine.quants import one_scale
from engine.quants.dot32 import eight_vectors, less
from engine.quants.joins import plain
from engine.quants.panels import pack_shorts, pack_words
from engine.quants.walk import walks

ACT = "q32"
ROW, PANEL, SUBS = 34, 272, 1
head, head_rows, scales, join = one_scale.head, one_scale.head_rows, one_scale.scales, plain


@inner
def values(w, _j):
    return eight_vectors(w + 16)


@inner
def start(like, x):
    return less(like, x, OWED) if OWED >= 0 else zero_i32(like)


@inner
def total(v, _c, x):
    return dot_i8(start(v[0], x), v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], x)


@inner
def total_rows(w, stride, _c, _j, x):
    a, u = ld_i8x32(x), w + 4 * stride
    sums = sums8(
        row_i8(ld_i8x32(w + 2), a), row_i8(ld_i8x32(w + stride + 2), a),
        row_i8(ld_i8x32(w + 2 * stride + 2), a), row_i8(ld_i8x32(w + 3 * stride + 2), a),
        row_i8(ld_i8x32(u + 2), a), row_i8(ld_i8x32(u + stride + 2), a),
        row_i8(ld_i8x32(u + 2 * stride + 2), a), row_i8(ld_i8x32(u + 3 * stride + 2), a),
    )  # fmt: skip
    return add_i32x8(start(a, x), sums)


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
