"""Q2_K: 256 weights in 84 bytes, sixteen times w = d * sc * q - dmin * m, q in 0..3, sc and m in 0..15.

    file block   | 16 bytes: sc low nibble, m high | 64 bytes: bits 2k, 2k + 1 of byte 32h + l = q[128h + 32k + l] |
                 | d f16 | dmin f16 |
    panel block  | d[8] f16 | dmin[8] f16 | 4 vectors of sc and m, a row's four bytes in each word |
                 | 2 x 8 vectors g of 32 bytes: byte 4r + c = row r's byte 32h + 4g + c |

Per sub-block of 32 and row: acc = fma(dx, fma(d, sum(sc * q * x), dmin * -sum(m * x)), acc), both sums whole numbers;
x int8 activations, dx their scale. Not here: how blocks are walked (walk.py).
"""

from engine.kernels.act import LESS, LESS_FIRST, SCALE
from engine.kernels.dots import dot_u6
from engine.kernels.fields import bits
from engine.kernels.jit import inner, kernel
from engine.kernels.simd import (
    column_i32, f32, high_f16, ld_f16, ld_f16x8, ld_i8x32, ld_i32x8, ld_u8, low_f16, mul_f32x8, shl_i32x8, sp_f32x8,
    st_f32,
)  # fmt: skip
from engine.kernels.wide import and_i32, bc_f32, bc_i32, fma_f32, mul_f32, sub_i32, to_f32, zero_i32
from engine.quants.dot32 import left, left_vectors, scale_left
from engine.quants.halves import row_halves, scaled
from engine.quants.panels import pack_shorts, pack_words
from engine.quants.walk import walks

ACT = "q32"
AHEAD = 2048  # rows of 8192, two threads: 13 -> 27 GB/s; Q4_K, Q6_K and the 32-blocks gain nothing for a whole model
ROW, PANEL, SUBS = 84, 672, 8
QS, D, DMIN = 16, 80, 82  # in a file block
WEIGHTS = 160  # in a panel block


@inner
def _thirty_second(dmin):
    """For sums that are 32 times too large, as the activations keep theirs."""
    return mul_f32x8(dmin, sp_f32x8(f32(1.0) / f32(32.0)))


@inner
def head(w):
    return (
        ld_f16x8(w), _thirty_second(ld_f16x8(w + 16)),
        ld_i32x8(w + 32), ld_i32x8(w + 64), ld_i32x8(w + 96), ld_i32x8(w + 128),
    )  # fmt: skip


@inner
def head_rows(w, stride):
    both = column_i32(w + D, stride)
    return (
        low_f16(both), _thirty_second(high_f16(both)),
        column_i32(w, stride), column_i32(w + 4, stride), column_i32(w + 8, stride), column_i32(w + 12, stride),
    )  # fmt: skip


@inner
def scales(h, j):
    """d, dmin / 32; sc of the two halves; m of the first less that of the second, and that one times 32."""
    low = h[2] if j < 2 else h[3]
    high = h[4] if j < 6 else h[5]
    word, k = low if j < 4 else high, 16 * (j & 1)
    m = bits(word, k + 12, 15)
    return (
        scale_left(h[0], 2 * (j & 3)), h[1],
        bits(word, k, 15), bits(word, k + 8, 15), sub_i32(bits(word, k + 4, 15), m), shl_i32x8(m, 5),
    )  # fmt: skip


@inner
def values(w, j):
    return left_vectors(w + WEIGHTS + (j >> 2) * 256, 2 * (j & 3), 3)


@inner
def _minimum(like, c, x):
    """-32 sum(m * x)."""
    return scaled(and_i32(bc_i32(like, x + LESS_FIRST), -32), bc_i32(like, x + LESS), c[4], c[5])


@inner
def total(v, c, x):
    z = zero_i32(v[0])
    first, second = dot_u6(z, v[0], v[1], v[2], v[3], x), dot_u6(z, v[4], v[5], v[6], v[7], x + 16)
    return scaled(first, second, c[2], c[3]), _minimum(v[0], c, x)


@inner
def join(acc, total, c, x):
    least = mul_f32(c[1], to_f32(total[1]))
    return fma_f32(bc_f32(acc, x + SCALE), fma_f32(c[0], to_f32(total[0]), least), acc)


@inner
def row_values(w, j):
    return left(ld_i8x32(w + QS + (j >> 2) * 32), 2 * (j & 3), 3)


@inner
def total_rows(w, stride, c, j, x):
    first, second = row_halves(row_values, w, stride, j, x)
    return scaled(first, second, c[2], c[3]), _minimum(ld_i8x32(x), c, x)


@inner
def pack_block(w, stride, out):
    pack_shorts(w + D, stride, out)
    pack_shorts(w + DMIN, stride, out + 16)
    pack_words(w, stride, 20, out + 32)


@kernel(3)
def unpack_row(row, n, out):
    for _ in range(n):
        d, dmin = ld_f16(row + D), ld_f16(row + DMIN)
        for j in range(8):
            for k in range(32):
                both = ld_u8(row + 2 * j + (k >> 4))
                q = ld_u8(row + QS + (j >> 2) * 32 + k) >> 2 * (j & 3) & 3
                st_f32(out + (32 * j + k) * 4, d * f32(both & 15) * f32(q) - dmin * f32(both >> 4))
        row += ROW
        out += 1024


panels, rows, pack = walks(globals())
