"""IQ4_XS: 256 weights in 136 bytes, eight times w = d * (sc - 32) * one of sixteen values, sc in 0..63.

    file block   | d f16 | u16: bits 2j, 2j + 1 = top of sc[j] | 4 bytes: nibble j = the rest of sc[j] |
                 | 8 x 16 bytes: byte i of group j names w[32j + i] by its low nibble, w[32j + 16 + i] by its high one |
    panel block  | 8 words: d, tops of sc | 8 words: the rest of sc |
                 | 8 x 4 groups g of 32 bytes: byte 4r + c of group g is row r's byte 4g + c |

Per sub-block of 32 and row: acc = fma(d * (sc - 32) * dx, sum(value * x), acc), x int8 activations, dx their scale.
Not here: the sixteen values (iq4.py), how blocks are walked (walk.py).
"""

from engine.kernels.dots import nibbles
from engine.kernels.dots import row_bytes as dot_row  # noqa: F401  (for the walks)
from engine.kernels.fields import bits, six
from engine.kernels.jit import inner, kernel
from engine.kernels.simd import (
    column_i32, f32, i2f, ld_f16, ld_i8x16, ld_i32x8, ld_u8, ld_u32, low_f16, mul_f32x8, or_i32x8, shl_i32x8, st_f32,
)  # fmt: skip
from engine.quants import iq4
from engine.quants.joins import plain
from engine.quants.panels import pack_words
from engine.quants.walk import walks

ACT = "q32"
ROW, PANEL, SUBS = 136, 1088, 8
join, start, total, named, named_vectors, weight = plain, iq4.start, iq4.total, iq4.named, iq4.named_vectors, iq4.weight


@inner
def _apart(both, low):
    return low_f16(both), both, low


@inner
def head(w):
    return _apart(ld_i32x8(w), ld_i32x8(w + 32))


@inner
def head_rows(w, stride):
    return _apart(column_i32(w, stride), column_i32(w + 4, stride))


@inner
def scales(h, j):
    sc = or_i32x8(bits(h[2], 4 * j, 15), shl_i32x8(bits(h[1], 16 + 2 * j, 3), 4))
    return (mul_f32x8(h[0], i2f(six(sc, 0))),)


@inner
def values(w, j):
    return named_vectors(w + 64 + j * 128)


@inner
def row_values(w, j):
    return named(nibbles(ld_i8x16(w + 8 + j * 16)))


@inner
def pack_block(w, stride, out):
    pack_words(w, stride, 2, out)
    for j in range(8):
        pack_words(w + 8 + j * 16, stride, 4, out + 64 + j * 128)


@kernel(3)
def unpack_row(row, n, out):
    for _ in range(n):
        d, tops = ld_f16(row), ld_u32(row) >> 16
        for j in range(8):
            sc = ld_u8(row + 4 + (j >> 1)) >> 4 * (j & 1) & 15 | (tops >> 2 * j & 3) << 4
            scale = d * f32(sc - 32)
            for i in range(16):
                byte, p = ld_u8(row + 8 + j * 16 + i), out + (32 * j + i) * 4
                st_f32(p, scale * f32(weight(byte & 15)))
                st_f32(p + 64, scale * f32(weight(byte >> 4)))
        row += ROW
        out += 1024


panels, rows, pack = walks(globals())
