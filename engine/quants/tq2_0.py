"""TQ2_0: 256 weights in 66 bytes, w = d * (q - 1) with q in 0..2 (3 where a file is damaged). Not here: the walks.

    file block   | 64 bytes: bits 2k, 2k + 1 of byte 32h + l = q[128h + 32k + l] | d f16 |
    panel block  | d[8] f16 | 2 x 8 vectors g of 32 bytes: byte 4r + c = row r's byte 32h + 4g + c |

Per sub-block of 32 and row: acc = fma(dx, fma(d, sum(q * x), -d * sum(x)), acc), x int8 activations, dx their scale.
"""

from engine.kernels.jit import inner, kernel
from engine.kernels.simd import column_f16, f32, ld_f16, ld_i8x32, ld_u8, st_f32
from engine.kernels.wide import zero_i32
from engine.quants import one_scale
from engine.quants.dot32 import dot_nibbles, left, left_vectors, scale_left
from engine.quants.joins import with_min
from engine.quants.panels import pack_shorts, pack_words
from engine.quants.walk import walks

ACT = "q32"
ROW, PANEL, SUBS = 66, 528, 8
head, join = one_scale.head, with_min


@inner
def head_rows(w, stride):
    return (column_f16(w + 64, stride),)


@inner
def scales(h, j):
    return scale_left(h[0], 2 * (j & 3)), h[0]


@inner
def values(w, j):
    return left_vectors(w + 16 + (j >> 2) * 256, 2 * (j & 3), 3)


@inner
def start(like, _x):
    return zero_i32(like)


@inner
def total(v, _c, x):
    return dot_nibbles(zero_i32(v[0]), v, x)


@inner
def row_values(w, j):
    return left(ld_i8x32(w + (j >> 2) * 32), 2 * (j & 3), 3)


@inner
def pack_block(w, stride, out):
    pack_shorts(w + 64, stride, out)
    pack_words(w, stride, 16, out + 16)


@kernel(3)
def unpack_row(row, n, out):
    for _ in range(n):
        d = ld_f16(row + 64)
        for j in range(8):
            for k in range(32):
                q = ld_u8(row + (j >> 2) * 32 + k) >> 2 * (j & 3) & 3
                st_f32(out + (32 * j + k) * 4, d * f32(q - 1))
        row += ROW
        out += 1024


panels, rows, pack = walks(globals())
