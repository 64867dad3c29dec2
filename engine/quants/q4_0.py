"""Q4_0: 32 weights in 18 bytes, w = d * (q - 8) with q in 0..15. Not here: how blocks are walked (walk.py).

    file block   | d f16 | 16 bytes: byte j = q[j] low nibble, q[j + 16] high nibble |
    panel block  | d[8] f16 | 4 groups g of 32 bytes: byte 4r + c of group g is row r's byte 4g + c |

Per block and row: acc = fma(d * dx, sum(q * x) - 8 * sum(x), acc), x the block's int8 activations, dx their scale.
"""

from engine.kernels.dots import nibbles
from engine.kernels.jit import inner, kernel
from engine.kernels.simd import f32, ld_f16, ld_i8x16, ld_u8, st_f32
from engine.quants import one_scale
from engine.quants.dot32 import dot_nibbles, less, nibble_vectors
from engine.quants.joins import plain
from engine.quants.panels import pack_shorts, pack_words
from engine.quants.walk import walks

ACT = "q32"
ROW, PANEL, SUBS = 18, 144, 1
head, head_rows, scales, join = one_scale.head, one_scale.head_rows, one_scale.scales, plain


@inner
def values(w, _j):
    return nibble_vectors(w + 16)


@inner
def start(like, x):
    return less(like, x, 3)


@inner
def total(v, _c, x):
    return dot_nibbles(start(v[0], x), v, x)


@inner
def row_values(w, _j):
    return nibbles(ld_i8x16(w + 2))


@inner
def pack_block(w, stride, out):
    pack_shorts(w, stride, out)
    pack_words(w + 2, stride, 4, out + 16)


@kernel(3)
def unpack_row(row, n, out):
    for _ in range(n):
        d = ld_f16(row)
        for j in range(16):
            byte = ld_u8(row + 2 + j)
            st_f32(out + j * 4, d * f32((byte & 15) - 8))
            st_f32(out + 64 + j * 4, d * f32((byte >> 4) - 8))
        row += ROW
        out += 128


panels, rows, pack = walks(globals())
