"""Q4_K: 256 weights in 144 bytes, eight times w = d * sc * q - dmin * m, q in 0..15. Not here: scales (k_scales.py).

    file block   | 16 bytes of scales | 4 x 32 bytes: byte l of group i = q[64i + l] low nibble, q[64i + 32 + l] high |
    panel block  | 128 bytes of scales | 4 x 8 vectors g of 32 bytes: byte 4r + c = row r's byte 4g + c of the group |

Per sub-block and row: acc = fma(dx, fma(d * sc, sum(q * x), -dmin * m * sum(x)), acc), x int8 activations, dx their
scale. llama.cpp has one activation scale for all 256; ours are per 32, for accuracy and for one format of activations.
"""

from engine.kernels.jit import inner, kernel
from engine.kernels.simd import f32, ld_i8x32, ld_u8, st_f32
from engine.kernels.wide import zero_i32
from engine.quants import k_scales
from engine.quants.dot32 import dot_nibbles, left, left_vectors, scale_left
from engine.quants.joins import with_min
from engine.quants.k_scales import HEAD, PANEL_HEAD, of_row, pack_head
from engine.quants.panels import pack_words
from engine.quants.walk import walks

ACT = "q32"
ROW, PANEL, SUBS = 144, 1152, 8
head, head_rows, join = k_scales.head, k_scales.head_rows, with_min


@inner
def scales(h, j):
    d, m = k_scales.scales(h, j)
    return scale_left(d, 4 * (j & 1)), m


@inner
def values(w, j):
    return left_vectors(w + PANEL_HEAD + (j >> 1) * 256, 4 * (j & 1), 15)


@inner
def start(like, _x):
    return zero_i32(like)


@inner
def total(v, _c, x):
    return dot_nibbles(zero_i32(v[0]), v, x)


@inner
def row_values(w, j):
    return left(ld_i8x32(w + HEAD + (j >> 1) * 32), 4 * (j & 1), 15)


@inner
def pack_block(w, stride, out):
    pack_head(w, stride, out)
    pack_words(w + HEAD, stride, 32, out + PANEL_HEAD)


@kernel(3)
def unpack_row(row, n, out):
    for _ in range(n):
        for j in range(8):
            d, m = of_row(row, j)
            for k in range(32):
                q = (ld_u8(row + HEAD + (j >> 1) * 32 + k) >> 4 * (j & 1)) & 15
                st_f32(out + (32 * j + k) * 4, d * f32(q) - m)
        row += ROW
        out += 1024


panels, rows, pack = walks(globals())
