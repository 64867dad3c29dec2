"""Q5_1: 32 weights in 24 bytes, w = d * q + m with q in 0..31. Not here: how blocks are walked (walk.py).

    file block   | d f16 | m f16 | u32: bit j = top of q[j] | 16 bytes: byte j = q[j] low nibble, q[j + 16] high |
    panel block  | d[8] f16 | m[8] f16 | 32 bytes: bit g of byte 4r + c = top bit of row r's q[4g + c] |
                 | 4 groups g of 32 bytes: byte 4r + c of group g is row r's byte 4g + c |

Per block and row: acc = fma(dx, fma(d, sum(q * x), m * sum(x)), acc), x the block's int8 activations, dx their scale.
"""

from engine.kernels.dots import nibbles
from engine.kernels.fields import spread, up4
from engine.kernels.jit import inner, kernel
from engine.kernels.simd import (
    column_i32, f32, high_f16, ld_f16, ld_f16x8, ld_i8x16, ld_u8, ld_u32, low_f16, or_i8x32, st_f32,
)  # fmt: skip
from engine.kernels.wide import zero_i32
from engine.quants.dot32 import dot_fives, nibble_vectors, one_bit_vectors, with_tops
from engine.quants.joins import negative, with_min
from engine.quants.panels import pack_bits, pack_shorts, pack_words
from engine.quants.walk import walks

ACT = "q32"
ROW, PANEL, SUBS = 24, 192, 1
join = with_min


@inner
def head(w):
    return ld_f16x8(w), negative(ld_f16x8(w + 16))


@inner
def head_rows(w, stride):
    both = column_i32(w, stride)
    return low_f16(both), negative(high_f16(both))


@inner
def scales(h, _j):
    return h


@inner
def values(w, _j):
    return with_tops(nibble_vectors(w + 64), one_bit_vectors(w + 32))


@inner
def start(like, _x):
    return zero_i32(like)


@inner
def total(v, _c, x):
    return dot_fives(zero_i32(v[0]), v, x)


@inner
def row_values(w, _j):
    return or_i8x32(nibbles(ld_i8x16(w + 8)), up4(spread(w + 4)))


@inner
def pack_block(w, stride, out):
    pack_shorts(w, stride, out)
    pack_shorts(w + 2, stride, out + 16)
    pack_bits(w + 4, stride, out + 32)
    pack_words(w + 8, stride, 4, out + 64)


@kernel(3)
def unpack_row(row, n, out):
    for _ in range(n):
        d, m, tops = ld_f16(row), ld_f16(row + 2), ld_u32(row + 4)
        for j in range(16):
            byte = ld_u8(row + 8 + j)
            low, high = byte & 15 | (tops >> j & 1) << 4, byte >> 4 | (tops >> j + 16 & 1) << 4
            st_f32(out + j * 4, d * f32(low) + m)
            st_f32(out + 64 + j * 4, d * f32(high) + m)
        row += ROW
        out += 128


panels, rows, pack = walks(globals())
