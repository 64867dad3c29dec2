"""The twelve bytes of 6-bit scales and minima that Q4_K and Q5_K share. Not here: their weights.

    d f16 | dmin f16 | byte 0..3: sc[0..3] below, top bits of sc[4..7] above | byte 4..7: the same of m
    byte 8..11: low nibbles of sc[4..7] below, of m[4..7] above          w = d * sc * q - dmin * m

Eight rows' bytes are three vectors of words, a row in each lane. A row's sixteen numbers are taken apart byte-wise
once a block, into four words of four: what is left for a sub-block is a shift and a mask.
"""

from engine.kernels.fields import bits
from engine.kernels.jit import inner
from engine.kernels.simd import (
    column_i32, f32, high_f16, i2f, ld_f16, ld_f16x8, ld_i32x8, ld_u8, low_f16, mul_f32x8, or_i32x8,
)  # fmt: skip
from engine.quants.panels import pack_shorts, pack_words

HEAD = 16  # bytes in a file block
PANEL_HEAD = 8 * HEAD  # d[8] | dmin[8] | three vectors of words


SIX, FOUR, TOP = 0x3F3F3F3F, 0x0F0F0F0F, 0x30303030


@inner
def _apart(d, dmin, a, b, c):
    return (
        d, dmin,
        bits(a, 0, SIX), or_i32x8(bits(c, 0, FOUR), bits(a, 2, TOP)),
        bits(b, 0, SIX), or_i32x8(bits(c, 4, FOUR), bits(b, 2, TOP)),
    )  # fmt: skip


@inner
def head(w):
    """Of a panel: d, dmin, sc[:4], sc[4:], m[:4], m[4:]."""
    return _apart(ld_f16x8(w), ld_f16x8(w + 16), ld_i32x8(w + 32), ld_i32x8(w + 64), ld_i32x8(w + 96))


@inner
def head_rows(w, stride):
    """The same of eight file rows."""
    both = column_i32(w, stride)
    a, b, c = column_i32(w + 4, stride), column_i32(w + 8, stride), column_i32(w + 12, stride)
    return _apart(low_f16(both), high_f16(both), a, b, c)


@inner
def scales(h, j):
    """d * sc and dmin * m of sub-block j, as joins.with_min takes them."""
    sc, m = (h[2], h[4]) if j < 4 else (h[3], h[5])
    return mul_f32x8(h[0], i2f(bits(sc, 8 * (j & 3), 255))), mul_f32x8(h[1], i2f(bits(m, 8 * (j & 3), 255)))


@inner
def pack_head(w, stride, out):
    pack_shorts(w, stride, out)
    pack_shorts(w + 2, stride, out + 16)
    pack_words(w + 4, stride, 3, out + 32)


@inner
def of_row(row, j):
    """d * sc and dmin * m of one file block."""
    if j < 4:
        sc, m = ld_u8(row + 4 + j) & 63, ld_u8(row + 8 + j) & 63
    else:
        last = ld_u8(row + 8 + j)
        sc, m = (last & 15) | ld_u8(row + j) >> 6 << 4, last >> 4 | ld_u8(row + 4 + j) >> 6 << 4
    return ld_f16(row) * f32(sc), ld_f16(row + 2) * f32(m)
