"""Q3_K: 256 weights in 110 bytes, sixteen times w = d * (sc - 32) * (q - 4), q in 0..7, sc in 0..63.

    file block   | 32 bytes: bit j of byte l = top of q[32j + l] |
                 | 64 bytes: bits 2k, 2k + 1 of byte 32h + l = the rest of q[128h + 32k + l] | 12 bytes of sc | d f16 |
    panel block  | d[8] f16 | 3 vectors of words of sc | 8 vectors A | 8 vectors B | 8 vectors C |
                 byte 4r + c of vector g of A, B, C holds of row r, column l = 4g + c:
                 A: q[l], q[32 + l], low two bits of q[192 + l]    B: q[64 + l], q[96 + l], low two of q[224 + l]
                 C: q[128 + l], q[160 + l], the tops of q[192 + l] and q[224 + l]

Six of eight sub-blocks lie in place that way: a mask and no shift. sc[i] has its low bits in byte i % 8, in the low
nibble for i < 8, and its top bits at 2(i / 4) of byte 8 + i % 4.

Per sub-block of 32 and row: acc = fma(d * dx, sum((sc - 32) * (q - 4) * x), acc), a sum of whole numbers; x int8
activations, dx their scale. Not here: how blocks are walked (walk.py).
"""

from engine.kernels.act import LESS, LESS_FIRST
from engine.kernels.dots import IN_PLACE, dot_u6
from engine.kernels.fields import bits, field, six, up2
from engine.kernels.jit import inner, kernel
from engine.kernels.simd import (
    column_f16, column_i32, f32, i32_of, ld_f16, ld_f16x8, ld_i8x32, ld_i32x8, ld_u8, ld_u32, or_i8x32, or_i32x8,
    shl_i32x8, sp_i32x8, st_f32, st_i32,
)  # fmt: skip
from engine.kernels.wide import add_i32, bc_i32, sar_i32, shl_each, shl_i32, sub_i32
from engine.quants.dot32 import field_vectors, left_vectors, scale_left
from engine.quants.halves import row_halves, scaled
from engine.quants.joins import plain
from engine.quants.panels import pack_shorts, pack_words
from engine.quants.walk import walks

ACT = "q32"
AHEAD = 2048  # rows of 8192, two threads: 13 -> 20 GB/s; Q4_K, Q6_K and the 32-blocks gain nothing for a whole model
ROW, PANEL, SUBS = 110, 880, 8
QS, SC, D = 32, 96, 108  # in a file block
WEIGHTS = 112  # in a panel block
FOUR, TOP = 0x0F0F0F0F, 0x30303030
ONES, LOW, THIRD = 0x01010101, 0x03030303, 0x04040404
join = plain


@inner
def _apart(d, a, b, c):
    """d and the sixteen sc, four to a word."""
    return (
        d,
        or_i32x8(bits(a, 0, FOUR), bits(shl_i32x8(c, 4), 0, TOP)),
        or_i32x8(bits(b, 0, FOUR), bits(shl_i32x8(c, 2), 0, TOP)),
        or_i32x8(bits(a, 4, FOUR), bits(c, 0, TOP)), or_i32x8(bits(b, 4, FOUR), bits(c, 2, TOP)),
    )  # fmt: skip


@inner
def head(w):
    return _apart(ld_f16x8(w), ld_i32x8(w + 16), ld_i32x8(w + 48), ld_i32x8(w + 80))


@inner
def head_rows(w, stride):
    s, d = w + SC, column_f16(w + D, stride)
    return _apart(d, column_i32(s, stride), column_i32(s + 4, stride), column_i32(s + 8, stride))


@inner
def _place(j):
    """How far left a sub-block's weights stay."""
    return 3 * (j & 1) if j < 6 and IN_PLACE else 0


@inner
def scales(h, j):
    """d, sc - 32 of the two halves, how far left the sums are, and two more."""
    low = h[1] if j < 2 else h[2]
    high = h[3] if j < 6 else h[4]
    word, k, place = low if j < 4 else high, 2 * (j & 1), _place(j)
    counts = sp_i32x8(i32_of(place)), sp_i32x8(i32_of(place + 2))
    return scale_left(h[0], place), six(word, k), six(word, k + 1), counts[0], counts[1]


@inner
def values(w, j):
    p = w + WEIGHTS
    if j < 6:
        return left_vectors(p + (j >> 1) * 256, 3 * (j & 1), 7)
    low, top = field_vectors(p + (j & 1) * 256, 6, 3), field_vectors(p + 512, 4 + (j & 1), 4)
    return (
        or_i8x32(low[0], top[0]), or_i8x32(low[1], top[1]), or_i8x32(low[2], top[2]), or_i8x32(low[3], top[3]),
        or_i8x32(low[4], top[4]), or_i8x32(low[5], top[5]), or_i8x32(low[6], top[6]), or_i8x32(low[7], top[7]),
    )  # fmt: skip


@inner
def total(v, c, x):
    first = shl_each(sar_i32(bc_i32(v[0], x + LESS_FIRST), 3), c[3])  # takes the 4 off: -4 sum(x[:16])
    second = sub_i32(shl_each(bc_i32(v[0], x + LESS), c[4]), first)
    return scaled(
        dot_u6(first, v[0], v[1], v[2], v[3], x), dot_u6(second, v[4], v[5], v[6], v[7], x + 16), c[1], c[2]
    )


@inner
def row_values(w, j):
    low = field(ld_i8x32(w + QS + (j >> 2) * 32), 2 * (j & 3), 3)
    return or_i8x32(low, up2(field(ld_i8x32(w), j, 1)))


@inner
def total_rows(w, stride, c, j, x):
    first, second = row_halves(row_values, w, stride, j, x)
    less = sar_i32(bc_i32(first, x + LESS_FIRST), 3)
    others = sub_i32(shl_i32(bc_i32(first, x + LESS), 2), less)
    return shl_each(scaled(add_i32(less, first), add_i32(others, second), c[1], c[2]), c[3])


@inner
def _three(low, top, k, j):
    """Four bytes of three bits: field k of `low`, bit j of `top`."""
    return low >> 2 * k & LOW | (top >> j & ONES) << 2


@inner
def pack_block(w, stride, out):
    pack_shorts(w + D, stride, out)
    pack_words(w + SC, stride, 3, out + 16)
    for r in range(8):
        for g in range(8):
            row, p = w + r * stride + g * 4, out + WEIGHTS + g * 32 + r * 4
            top, near, far = ld_u32(row), ld_u32(row + QS), ld_u32(row + QS + 32)
            v6, v7 = _three(far, top, 2, 6), _three(far, top, 3, 7)
            a = _three(near, top, 0, 0) | _three(near, top, 1, 1) << 3 | (v6 & LOW) << 6
            b = _three(near, top, 2, 2) | _three(near, top, 3, 3) << 3 | (v7 & LOW) << 6
            c = _three(far, top, 0, 4) | _three(far, top, 1, 5) << 3 | (v6 & THIRD) << 4 | (v7 & THIRD) << 5
            st_i32(p, i32_of(a))
            st_i32(p + 256, i32_of(b))
            st_i32(p + 512, i32_of(c))


@kernel(3)
def unpack_row(row, n, out):
    for _ in range(n):
        d = ld_f16(row + D)
        for j in range(8):
            for k in range(32):
                i = 2 * j + (k >> 4)
                low = ld_u8(row + SC + (i & 7)) >> 4 * (i >> 3) & 15
                sc = low | (ld_u8(row + SC + 8 + (i & 3)) >> 2 * (i >> 2) & 3) << 4
                q = (ld_u8(row + QS + (j >> 2) * 32 + k) >> 2 * (j & 3) & 3) | (ld_u8(row + k) >> j & 1) << 2
                st_f32(out + (32 * j + k) * 4, d * f32(sc - 32) * f32(q - 4))
        row += ROW
        out += 1024


panels, rows, pack = walks(globals())
