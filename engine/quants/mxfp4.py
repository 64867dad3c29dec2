"""MXFP4: 32 weights in 17 bytes, w = 2^(e - 128) * one of sixteen values: E2M1 of OCP Microscaling, doubled.

    file block   | e u8 | 16 bytes: byte j names w[j] by its low nibble, w[j + 16] by its high one |
    panel block  | e[8] u8 | 4 groups g of 32 bytes: byte 4r + c of group g is row r's byte 4g + c |

Values are multiplied as value + 16, 4..28. Per block and row: acc = fma(2^(e - 128) * dx, sum(value * x), acc), x the
block's int8 activations, dx their scale. Not here: the powers (kernels/e8m0.py), how blocks are walked (walk.py).
"""

from engine.kernels.dots import nibbles
from engine.kernels.e8m0 import column_e8m0, ld_e8m0, ld_e8m0x8
from engine.kernels.jit import inner, kernel
from engine.kernels.lookup import table
from engine.kernels.simd import f32, ld_i8x16, ld_u8, st_f32, st_u8
from engine.quants.dot32 import dot_fives, less, nibble_vectors
from engine.quants.joins import plain
from engine.quants.panels import pack_words
from engine.quants.walk import walks

ACT = "q32"
ROW, PANEL, SUBS = 17, 136, 1
VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
join = plain
named = table([v + 16 for v in VALUES])


@inner
def head(w):
    return (ld_e8m0x8(w),)


@inner
def head_rows(w, stride):
    return (column_e8m0(w, stride),)


@inner
def scales(h, _j):
    return h


@inner
def values(w, _j):
    v = nibble_vectors(w + 8)
    return named(v[0]), named(v[1]), named(v[2]), named(v[3]), named(v[4]), named(v[5]), named(v[6]), named(v[7])


@inner
def start(like, x):
    return less(like, x, 4)


@inner
def total(v, _c, x):
    return dot_fives(start(v[0], x), v, x)


@inner
def row_values(w, _j):
    return named(nibbles(ld_i8x16(w + 1)))


@inner
def pack_block(w, stride, out):
    for r in range(8):
        st_u8(out + r, ld_u8(w + r * stride))
    pack_words(w + 1, stride, 4, out + 8)


@kernel(3)
def unpack_row(row, n, out):
    for _ in range(n):
        d = ld_e8m0(row)
        for j in range(16):
            byte = ld_u8(row + 1 + j)
            st_f32(out + j * 4, d * f32(VALUES[byte & 15]))
            st_f32(out + 64 + j * 4, d * f32(VALUES[byte >> 4]))
        row += ROW
        out += 128


panels, rows, pack = walks(globals())
