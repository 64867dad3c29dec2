"""TQ1_0: 256 weights in 54 bytes, w = d * (q - 1) with q in 0..2, five to a byte. Not here: a byte's values (trits.py).

    file block   | 32 bytes: value n of byte l = q[32n + l] | 16 bytes: value n of byte l = q[160 + 16n + l] |
                 | 4 bytes: value n of byte l = q[240 + 4n + l], n < 4 | d f16 |
    panel block  | d[8] f16 | 13 vectors g of 32 bytes: byte 4r + c = row r's byte 4g + c |

Per sub-block of 32 and row: acc = fma(d * dx, sum(q * x) - sum(x), acc), x int8 activations, dx their scale.

One token spends most on taking values out of bytes, so where bytes without a sign can be multiplied it takes none out.
With p the byte times 3^n and p' the byte times 3^(n + 1), both of 256, value n is (3p - p') / 256 without a rest: hence
sum(q * x) = (3 sum(p * x) - sum(p' * x)) / 256, two products and no value. A tile's values serve all its tokens.
"""

from engine.kernels.act import BLOCK, LESS_FIRST
from engine.kernels.dots import IN_PLACE
from engine.kernels.jit import inner, kernel
from engine.kernels.simd import column_f16, f32, ld_f16, ld_i8x32, ld_u8, st_f32, z_f32x8
from engine.kernels.trits import thrice, trits, trits_of_16, trits_of_20
from engine.kernels.wide import add_i32, sar_i32, sub_i32, zero_i32
from engine.quants import one_scale
from engine.quants.dot32 import dot_nibbles, eight_vectors, less
from engine.quants.joins import plain
from engine.quants.panels import pack_shorts, pack_words
from engine.quants.walk import walks

ACT = "q32"
ROW, PANEL, SUBS = 54, 432, 8
SIXTEEN, FOUR, D = 32, 48, 52  # in a file block
head, scales, join = one_scale.head, one_scale.scales, plain


@inner
def head_rows(w, stride):
    return (column_f16(w + D, stride),)


@inner
def _four(p, n):
    return (
        trits(ld_i8x32(p), n), trits(ld_i8x32(p + 32), n), trits(ld_i8x32(p + 64), n), trits(ld_i8x32(p + 96), n)
    )  # fmt: skip


@inner
def values(w, j):
    p = w + 16
    if j < 5:
        return _four(p, j) + _four(p + 128, j)
    p += 256
    if j < 7:
        return _four(p, 2 * j - 10) + _four(p, 2 * j - 9)
    last = ld_i8x32(p + 128)
    ends = trits(last, 0), trits(last, 1), trits(last, 2), trits(last, 3)
    return _four(p, 4) + ends


@inner
def start(like, x):
    return less(like, x, 0)


@inner
def total(v, _c, x):
    return dot_nibbles(start(v[0], x), v, x)


@inner
def row_values(w, j):
    if j < 5:
        return trits(ld_i8x32(w), j)
    if j < 7:
        return trits_of_16(w + SIXTEEN, 2 * j - 10, 2 * j - 9)
    return trits_of_20(w + SIXTEEN)


@inner
def _both(p, q, x):
    """`total` of bytes p and of q, three times as much."""
    z = zero_i32(p[0])
    one, next_one = dot_nibbles(z, p, x), dot_nibbles(z, q, x)
    return add_i32(start(p[0], x), sar_i32(add_i32(add_i32(one, one), sub_i32(one, next_one)), 8))


@inner
def _step(acc, p, q, h, x, fine):
    acc = join(acc, _both(p, q, x), h, x)
    if ld_u8(x + LESS_FIRST) & 1:
        acc = join(acc, _both(p, q, x + fine), h, x + fine)
    return acc


@inner
def _thrice(p):
    return (
        thrice(p[0]), thrice(p[1]), thrice(p[2]), thrice(p[3]), thrice(p[4]), thrice(p[5]), thrice(p[6]), thrice(p[7])
    )  # fmt: skip


@inner
def _halves(p, q):
    """The last four of p, the first four of q."""
    return p[4], p[5], p[6], p[7], q[0], q[1], q[2], q[3]


@inner
def _block(acc, w, x, next_x, fine):
    h, p = head(w), eight_vectors(w + 16)
    for _ in range(5):
        q = _thrice(p)
        acc = _step(acc, p, q, h, x, fine)
        p, x = q, x + next_x
    a, last = w + 272, ld_i8x32(w + 400)
    p = (
        ld_i8x32(a), ld_i8x32(a + 32), ld_i8x32(a + 64), ld_i8x32(a + 96),
        thrice(ld_i8x32(a)), thrice(ld_i8x32(a + 32)), thrice(ld_i8x32(a + 64)), thrice(ld_i8x32(a + 96)),
    )  # fmt: skip
    for _ in range(2):
        third = _thrice(_thrice(p))
        acc = _step(acc, p, _halves(p, third), h, x, fine)
        p, x = third, x + next_x
    q = thrice(last), thrice(thrice(last))
    ends = q[0], q[1], thrice(q[1]), thrice(thrice(q[1]))
    end = thrice(p[0]), thrice(p[1]), thrice(p[2]), thrice(p[3])
    return _step(acc, (p[0], p[1], p[2], p[3], last, ends[0], ends[1], ends[2]), end + ends, h, x, fine)


if IN_PLACE:

    @inner
    def one(w, act, T, t, n):
        x, next_x, fine = act + t * BLOCK, T * BLOCK, n * SUBS * T * BLOCK
        acc = z_f32x8()
        for _ in range(n):
            acc = _block(acc, w, x, next_x, fine)
            x += SUBS * next_x
            w += PANEL
        return acc


@inner
def pack_block(w, stride, out):
    pack_shorts(w + D, stride, out)
    pack_words(w, stride, 13, out + 16)


@inner
def _value(byte, n):
    for _ in range(n):
        byte = byte * 3 & 255
    return byte * 3 >> 8


@kernel(3)
def unpack_row(row, n, out):
    for _ in range(n):
        d = ld_f16(row + D)
        for i in range(256):
            if i < 160:
                q = _value(ld_u8(row + (i & 31)), i >> 5)
            elif i < 240:
                q = _value(ld_u8(row + SIXTEEN + (i & 15)), i - 160 >> 4)
            else:
                q = _value(ld_u8(row + FOUR + (i & 3)), i - 240 >> 2)
            st_f32(out + i * 4, d * f32(q - 1))
        row += ROW
        out += 1024


panels, rows, pack = walks(globals())
