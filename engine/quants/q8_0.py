"""Q8_0: 32 weights in 34 bytes, w = d * q with q in -128..127. Not here: where the blocks live.

    file block   | d f16 | 32 bytes q |
    panel block  | d[8] f16 | 8 groups g of 32 bytes: byte 4r + c of group g is row r's q[4g + c] |

Per block and row: acc = fma(d * dx, sum(q * x), acc), x the block's int8
activations, dx their scale; once more for the block's fine half, where it has one (kernels/act.py).
"""

from engine.kernels.dots import dot_bias, dot_i8, unsigned_i8
from engine.kernels.jit import inner, kernel
from engine.kernels.simd import (
    bc4_i8x32, bc_f32x8, column_f16, f32, fma_f32x8, i2f, ld_f16, ld_f16x8, ld_f32, ld_f32x8, ld_i8, ld_i8x32, ld_i16,
    ld_i32, mul_f32x8, prefetch, st_f32, st_f32x8, st_i16, st_i32, sub_f32x8, sums8, z_f32x8, z_i32x8,
)  # fmt: skip
from engine.quants.panels import put, put_all, zero

ACT = "q32"
ROW, PANEL = 34, 272


@inner
def _join(acc, total, d, dx, sx):
    """One block's step of the f32 chain: total i32x8 as dot_i8 leaves it, d f32x8, dx and sx addresses."""
    centred = sub_f32x8(i2f(total), dot_bias(sx))  # whole numbers below 2^24: exact
    return fma_f32x8(mul_f32x8(d, bc_f32x8(dx)), centred, acc)


@inner
def _four(total, u0, u1, u2, u3, v0, v1, v2, v3, q):
    """Sixteen columns: weights v, their unsigned forms u."""
    total = dot_i8(total, u0, bc4_i8x32(q), v0)
    total = dot_i8(total, u1, bc4_i8x32(q + 4), v1)
    total = dot_i8(total, u2, bc4_i8x32(q + 8), v2)
    return dot_i8(total, u3, bc4_i8x32(q + 12), v3)


@inner
def _dot(v0, v1, v2, v3, v4, v5, v6, v7, q):
    """Thirty-two columns; LLVM takes the unsigned forms out of a tile's loop over tokens."""
    total = _four(
        z_i32x8(), unsigned_i8(v0), unsigned_i8(v1), unsigned_i8(v2), unsigned_i8(v3), v0, v1, v2, v3, q
    )
    return _four(
        total, unsigned_i8(v4), unsigned_i8(v5), unsigned_i8(v6), unsigned_i8(v7), v4, v5, v6, v7, q + 16
    )


@inner
def _block(acc, v0, v1, v2, v3, v4, v5, v6, v7, dw, q, d, s, fine):
    """A block of one token: coarse, then fine where d says that there is a fine half."""
    acc = _join(acc, _dot(v0, v1, v2, v3, v4, v5, v6, v7, q), dw, d, s)
    if ld_f32(d + fine) != f32(0.0):
        acc = _join(acc, _dot(v0, v1, v2, v3, v4, v5, v6, v7, q + fine), dw, d + fine, s + fine)
    return acc


@inner
def _one(w, act, T, t, n):
    q, d, fine = act + t * 32, act + n * T * 32 + t * 4, n * T * 40
    s = d + n * T * 4
    acc = z_f32x8()
    for _ in range(n):
        v0, v1, v2, v3 = ld_i8x32(w + 16), ld_i8x32(w + 48), ld_i8x32(w + 80), ld_i8x32(w + 112)
        v4, v5, v6, v7 = ld_i8x32(w + 144), ld_i8x32(w + 176), ld_i8x32(w + 208), ld_i8x32(w + 240)
        dw = ld_f16x8(w)
        acc = _block(acc, v0, v1, v2, v3, v4, v5, v6, v7, dw, q, d, s, fine)
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
        v4, v5, v6, v7 = ld_i8x32(w + 144), ld_i8x32(w + 176), ld_i8x32(w + 208), ld_i8x32(w + 240)
        dw = ld_f16x8(w)
        a = out
        for t in range(t0, t1):
            st_f32x8(a, _block(ld_f32x8(a), v0, v1, v2, v3, v4, v5, v6, v7, dw, q + t * 32, d + t * 4, s + t * 4, fine))
            a += 32
        w += PANEL
        q += T * 32
        d += T * 4
        s += T * 4


@inner
def _row_sum(w, x):
    v = ld_i8x32(w + 2)
    return dot_i8(z_i32x8(), unsigned_i8(v), x, v)


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
        prefetch(ahead + 192)
        prefetch(ahead + 256)
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
def _pack(file_rows, n, out):
    for b in range(n):
        for r in range(8):
            src = file_rows + (r * n + b) * ROW
            st_i16(out + r * 2, ld_i16(src))
            for g in range(8):
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
        for j in range(32):
            st_f32(out + j * 4, d * f32(ld_i8(row + 2 + j)))
        row += ROW
        out += 128
