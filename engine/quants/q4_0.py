"""Q4_0: 32 weights in 18 bytes, w = d * (q - 8) with q in 0..15. Not here: where the blocks live.

    file block   | d f16 | 16 bytes: byte j = q[j] low nibble, q[j + 16] high nibble |
    panel block  | d[8] f16 | 4 groups g of 32 bytes: byte 4r + c of group g is row r's byte 4g + c |

Per block and row: acc = fma(d * dx, sum(q * x) - 8 * sum(x), acc), x the block's int8
activations, dx their scale; once more for the block's fine half, where it has one (kernels/act.py).
"""

from engine.kernels.dots import dot_row, dot_u4, hi4, lo4, nibbles
from engine.kernels.jit import inner, kernel
from engine.kernels.simd import (
    bc4_i8x32, bc_f32x8, column_f16, f32, fma_f32x8, i2f, ld_f16, ld_f16x8, ld_f32, ld_f32x8, ld_i8x16, ld_i8x32,
    ld_i16, ld_i32, ld_u8, mul_f32x8, prefetch, sp_f32x8, st_f32, st_f32x8, st_i16, st_i32, sums8, z_f32x8,
)  # fmt: skip
from engine.quants.panels import put, put_all, zero

ACT = "q32"
ROW, PANEL = 18, 144


@inner
def _join(acc, total, d, dx, sx):
    """One block's step of the f32 chain: total i32x8, d f32x8, dx and sx addresses of the scale and the sum."""
    centred = fma_f32x8(sp_f32x8(f32(-8.0)), bc_f32x8(sx), i2f(total))  # whole numbers below 2^24: exact
    return fma_f32x8(mul_f32x8(d, bc_f32x8(dx)), centred, acc)


@inner
def _dot(v0, v1, v2, v3, q):
    return dot_u4(
        lo4(v0), lo4(v1), lo4(v2), lo4(v3), hi4(v0), hi4(v1), hi4(v2), hi4(v3),
        bc4_i8x32(q), bc4_i8x32(q + 4), bc4_i8x32(q + 8), bc4_i8x32(q + 12),
        bc4_i8x32(q + 16), bc4_i8x32(q + 20), bc4_i8x32(q + 24), bc4_i8x32(q + 28),
    )  # fmt: skip


@inner
def _block(acc, v0, v1, v2, v3, dw, q, d, s, fine):
    """A block of one token: coarse, then fine where d says that there is a fine half."""
    acc = _join(acc, _dot(v0, v1, v2, v3, q), dw, d, s)
    if ld_f32(d + fine) != f32(0.0):
        acc = _join(acc, _dot(v0, v1, v2, v3, q + fine), dw, d + fine, s + fine)
    return acc


@inner
def _one(w, act, T, t, n):
    q, d, fine = act + t * 32, act + n * T * 32 + t * 4, n * T * 40
    s = d + n * T * 4
    acc = z_f32x8()
    for _ in range(n):
        v0, v1, v2, v3 = ld_i8x32(w + 16), ld_i8x32(w + 48), ld_i8x32(w + 80), ld_i8x32(w + 112)
        dw = ld_f16x8(w)
        acc = _block(acc, v0, v1, v2, v3, dw, q, d, s, fine)
        w += PANEL
        q += T * 32
        d += T * 4
        s += T * 4
    return acc


@inner
def _tile(w, act, T, t0, t1, n, out):
    q, d, fine = act, act + n * T * 32, n * T * 40
    s = d + n * T * 4
    for _ in range(n):
        v0, v1, v2, v3 = ld_i8x32(w + 16), ld_i8x32(w + 48), ld_i8x32(w + 80), ld_i8x32(w + 112)
        dw = ld_f16x8(w)
        a = out
        for t in range(t0, t1):
            st_f32x8(a, _block(ld_f32x8(a), v0, v1, v2, v3, dw, q + t * 32, d + t * 4, s + t * 4, fine))
            a += 32
        w += PANEL
        q += T * 32
        d += T * 4
        s += T * 4


@inner
def _row_sum(w, x):
    return dot_row(nibbles(ld_i8x16(w + 2)), x)


@inner
def _row_dot(w, stride, q):
    x, w4 = ld_i8x32(q), w + 4 * stride
    return sums8(
        _row_sum(w, x), _row_sum(w + stride, x), _row_sum(w + 2 * stride, x), _row_sum(w + 3 * stride, x),
        _row_sum(w4, x), _row_sum(w4 + stride, x), _row_sum(w4 + 2 * stride, x), _row_sum(w4 + 3 * stride, x),
    )  # fmt: skip


@inner
def _one_row(w, stride, act, T, t, n, _panel):
    q, d, fine = act + t * 32, act + n * T * 32 + t * 4, n * T * 40
    s = d + n * T * 4
    acc, ahead = z_f32x8(), w + 8 * stride  # the next eight rows: hardware follows no eight streams
    for _ in range(n):
        prefetch(ahead)
        prefetch(ahead + 64)
        prefetch(ahead + 128)
        dw = column_f16(w, stride)
        acc = _join(acc, _row_dot(w, stride, q), dw, d, s)
        if ld_f32(d + fine) != f32(0.0):
            acc = _join(acc, _row_dot(w, stride, q + fine), dw, d + fine, s + fine)
        w += ROW
        ahead += 8 * ROW
        q += T * 32
        d += T * 4
        s += T * 4
    return acc


@inner
def _pack(rows, n, out):
    for b in range(n):
        for r in range(8):
            src = rows + (r * n + b) * ROW
            st_i16(out + r * 2, ld_i16(src))
            for g in range(4):
                st_i32(out + 16 + g * 32 + r * 4, ld_i32(src + 2 + g * 4))
        out += PANEL


@kernel(12)
def panels(w, act, T, t0, t1, n, y, ldy, p0, p1, scratch, add):
    for p in range(p0, p1):
        panel = w + p * n * PANEL
        if t1 - t0 == 1:
            put(y + p * 32 + t0 * ldy, _one(panel, act, T, t0, n), add)
        else:
            zero(scratch, t1 - t0)
            _tile(panel, act, T, t0, t1, n, scratch)
            put_all(y + p * 32, ldy, t0, t1, scratch, add)


@kernel(12)
def rows(w, act, T, t0, t1, n, y, ldy, p0, p1, scratch, add):
    panel = scratch + (t1 - t0) * 32
    for p in range(p0, p1):
        eight = w + p * 8 * n * ROW
        if t1 - t0 == 1:
            put(y + p * 32 + t0 * ldy, _one_row(eight, n * ROW, act, T, t0, n, panel), add)
        else:
            _pack(eight, n, panel)
            zero(scratch, t1 - t0)
            _tile(panel, act, T, t0, t1, n, scratch)
            put_all(y + p * 32, ldy, t0, t1, scratch, add)


@kernel(3)
def pack(file_rows, n, out):
    _pack(file_rows, n, out)


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
