"""Q6_K: 256 weights in 210 bytes, sixteen times w = d * sc * (q - 32), q in 0..63, sc int8. Not here: the walks.

    file block   | 128 bytes ql | 64 bytes qh | 16 bytes sc | d f16 |
                 sub-block j of 32, h = j / 4, k = j % 4:  low four bits = nibble k / 2 of ql[64h + 32(k % 2) + l],
                 top two = bits 2k, 2k + 1 of qh[32h + l];  sc[2j] for l < 16, sc[2j + 1] for the others
    panel block  | d[8] f16 | 4 vectors of sc, a row's four in each word |
                 | for each h: 8 vectors of ql[64h ...] | 8 of qh[32h ...] | 8 of ql[64h + 32 ...] |
                 in the order in which they are first needed: the hardware reads ahead of ascending addresses only
                 (all ql before qh: 14.5 GB/s of one thread from memory, this order: 26.8)

Per sub-block and row: acc = fma(dx, fma(d * sc', sum'(q' * x), d * sc * sum(q' * x)), acc) with q' = q - 32, the sums
over sixteen columns each.
"""

from engine.kernels.act import LESS, LESS_FIRST, SCALE
from engine.kernels.dots import dot_u6
from engine.kernels.fields import field, signed_byte, up4
from engine.kernels.jit import inner, kernel
from engine.kernels.simd import (
    column_f16, column_i32, f32, i2f, ld_f16, ld_f16x8, ld_i8, ld_i8x32, ld_i32x8, ld_u8, mul_f32x8, or_i8x32,
    st_f32,
)  # fmt: skip
from engine.kernels.wide import add_i32, and_i32, bc_f32, bc_i32, fma_f32, mul_f32, shl_i32, sub_i32, to_f32
from engine.quants.dot32 import field_vectors, with_tops
from engine.quants.halves import row_halves
from engine.quants.panels import pack_shorts, pack_words
from engine.quants.walk import walks

ACT = "q32"
ROW, PANEL, SUBS = 210, 1680, 8
QH, SC, D = 128, 192, 208  # in a file block
WEIGHTS = 144  # in a panel block


@inner
def head(w):
    return ld_f16x8(w), ld_i32x8(w + 16), ld_i32x8(w + 48), ld_i32x8(w + 80), ld_i32x8(w + 112)


@inner
def head_rows(w, stride):
    s = w + SC
    return (
        column_f16(w + D, stride),
        column_i32(s, stride), column_i32(s + 4, stride), column_i32(s + 8, stride), column_i32(s + 12, stride),
    )  # fmt: skip


@inner
def scales(h, j):
    """d * sc of the two groups of sub-block j."""
    low = h[1] if j < 2 else h[2]
    high = h[3] if j < 6 else h[4]
    word, k = low if j < 4 else high, 2 * (j & 1)
    return mul_f32x8(h[0], i2f(signed_byte(word, k))), mul_f32x8(h[0], i2f(signed_byte(word, k + 1)))


@inner
def values(w, j):
    half = w + WEIGHTS + (j >> 2) * 768
    low = field_vectors(half + (j & 1) * 512, 2 * (j & 2), 15)
    return with_tops(low, field_vectors(half + 256, 2 * (j & 3), 3))


@inner
def _starts(like, x):
    """What takes the 32 off the weights of the first and of the last sixteen columns."""
    first = and_i32(bc_i32(like, x + LESS_FIRST), -32)
    return first, sub_i32(shl_i32(bc_i32(like, x + LESS), 5), first)


@inner
def total(v, _c, x):
    """Two sums, of sixteen columns each."""
    first, second = _starts(v[0], x)
    return dot_u6(first, v[0], v[1], v[2], v[3], x), dot_u6(second, v[4], v[5], v[6], v[7], x + 16)


@inner
def join(acc, total, c, x):
    scaled = fma_f32(c[1], to_f32(total[1]), mul_f32(c[0], to_f32(total[0])))
    return fma_f32(bc_f32(acc, x + SCALE), scaled, acc)


@inner
def row_values(w, j):
    low = field(ld_i8x32(w + (j >> 2) * 64 + (j & 1) * 32), 2 * (j & 2), 15)
    return or_i8x32(low, up4(field(ld_i8x32(w + QH + (j >> 2) * 32), 2 * (j & 3), 3)))


@inner
def total_rows(w, stride, _c, j, x):
    sums = row_halves(row_values, w, stride, j, x)
    first, second = _starts(sums[0], x)
    return add_i32(first, sums[0]), add_i32(second, sums[1])


@inner
def pack_block(w, stride, out):
    pack_shorts(w + D, stride, out)
    pack_words(w + SC, stride, 4, out + 16)
    for h in range(2):
        half = out + WEIGHTS + h * 768
        pack_words(w + h * 64, stride, 8, half)
        pack_words(w + QH + h * 32, stride, 8, half + 256)
        pack_words(w + h * 64 + 32, stride, 8, half + 512)


@kernel(3)
def unpack_row(row, n, out):
    for _ in range(n):
        d = ld_f16(row + D)
        for j in range(8):
            for k in range(32):
                low = (ld_u8(row + (j >> 2) * 64 + (j & 1) * 32 + k) >> 2 * (j & 2)) & 15
                q = low | (ld_u8(row + QH + (j >> 2) * 32 + k) >> 2 * (j & 3) & 3) << 4
                st_f32(out + (32 * j + k) * 4, d * f32(ld_i8(row + SC + 2 * j + (k >> 4))) * f32(q - 32))
        row += ROW
        out += 1024


panels, rows, pack = walks(globals())
