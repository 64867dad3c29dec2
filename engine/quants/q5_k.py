"""Q5_K: 256 weights in 176 bytes, eight times w = d * sc * q - dmin * m, q in 0..31. Not here: scales (k_scales.py).

    file block   | 16 bytes of scales | 32 bytes: bit j of byte l = top bit of q[32j + l] | 128 bytes of nibbles |
    panel block  | 128 bytes of scales | 8 vectors of top bits | 4 x 8 vectors of nibbles |      nibbles as in q4_k.py

Vector g of each eight has row r's byte 4g + c at 4r + c. Per sub-block and row the chain is that of Q4_K.
"""

from engine.kernels.fields import field, up4
from engine.kernels.jit import inner, kernel
from engine.kernels.simd import f32, ld_i8x32, ld_u8, or_i8x32, st_f32
from engine.kernels.wide import zero_i32
from engine.quants import k_scales
from engine.quants.dot32 import dot_fives, field_vectors, with_tops
from engine.quants.joins import with_min
from engine.quants.k_scales import HEAD, PANEL_HEAD, of_row, pack_head
from engine.quants.panels import pack_words
from engine.quants.walk import walks

ACT = "q32"
ROW, PANEL, SUBS = 176, 1408, 8
head, head_rows, scales, join = k_scales.head, k_scales.head_rows, k_scales.scales, with_min


@inner
def values(w, j):
    tops = field_vectors(w + PANEL_HEAD, j, 1)
    return with_tops(field_vectors(w + PANEL_HEAD + 256 + (j >> 1) * 256, 4 * (j & 1), 15), tops)


@inner
def start(like, _x):
    return zero_i32(like)


@inner
def total(v, _c, x):
    return dot_fives(zero_i32(v[0]), v, x)


@inner
def row_values(w, j):
    low = field(ld_i8x32(w + HEAD + 32 + (j >> 1) * 32), 4 * (j & 1), 15)
    return or_i8x32(low, up4(field(ld_i8x32(w + HEAD), j, 1)))


@inner
def pack_block(w, stride, out):
    pack_head(w, stride, out)
    pack_words(w + HEAD, stride, 40, out + PANEL_HEAD)


@kernel(3)
def unpack_row(row, n, out):
    for _ in range(n):
        for j in range(8):
            d, m = of_row(row, j)
            for k in range(32):
                low = (ld_u8(row + HEAD + 32 + (j >> 1) * 32 + k) >> 4 * (j & 1)) & 15
                st_f32(out + (32 * j + k) * 4, d * f32(low | (ld_u8(row + HEAD + k) >> j & 1) << 4) - m)
        row += ROW
        out += 1024


panels, rows, pack = walks(globals())
