"""Q5_0: 32 weights in 22 bytes, w = d * (q - 16) with q in 0..31. Not here: how blocks are walked (walk.py).

    file block   | d f16 | u32: bit j = top of q[j] | 16 bytes: byte j = q[j] low nibble, q[j + 16] high |
    panel block  | d[8] f16 | 32 bytes: bit g of byte 4r + c = top bit of row r's q[4g + c] |
                 | 4 groups g of 32 bytes: byte 4r + c of group g is row r's byte 4g + c |

Per block and row: acc = fma(d * dx, sum(q * x) - 16 * sum(x), acc), x the block's int8 activations, dx their scale.
"""

from engine.kernels.dots import nibbles
from engine.kernels.fields import spread, up4
from engine.kernels.jit import inner, kernel
from engine.kernels.simd import f32, ld_f16, ld_i8x16, ld_u8, ld_u32, or_i8x32, st_f32
from engine.quants import one_scale
from engine.quants.dot32 import dot_fives, less, nibble_vectors, one_bit_vectors, with_tops
from engine.quants.joins import plain
from engine.quants.panels import pack_bits, pack_shorts, pack_words
from engine.quants.walk import walks

ACT = "q32"
ROW, PANEL, SUBS = 22, 176, 1
head, head_rows, scales, join = one_scale.head, one_scale.head_rows, one_scale.scales, plain


@inner
def values(w, _j):
    return with_tops(nibble_vectors(w + 48), one_bit_vectors(w + 16))


@inner
def start(like, x):
    return less(like, x, 4)


@inner
def total(v, _c, x):
    return dot_fives(start(v[0], x), v, x)


@inner
def row_values(w, _j):
    return or_i8x32(nibbles(ld_i8x16(w + 6)), up4(spread(w + 2)))


@inner
def pack_block(w, stride, out):
    pack_shorts(w, stride, out)
    pack_bits(w + 2, stride, out + 16)
    pack_words(w + 6, stride, 4, out + 48)


@kernel(3)
def unpack_row(row, n, out):
    for _ in range(n):
        d, tops = ld_f16(row), ld_u32(row + 2)
        for j in range(16):
            byte = ld_u8(row + 6 + j)
            low, high = byte & 15 | (tops >> j & 1) << 4, byte >> 4 | (tops >> j + 16 & 1) << 4
            st_f32(out + j * 4, d * f32(low - 16))
            st_f32(out + 64 + j * 4, d * f32(high - 16))
        row += ROW
        out += 128


panels, rows, pack = walks(globals())
