"""RMS norm and layer norm, written straight into the formats the next matrices want. Not here: the formats (act.py).

    record            1 x   2 bytes from row to row   3 weight f32[k]   4 k   5 eps (f32)   6 act f32 or 0
                      7 act q32 or 0   8 bytes between threads' copies of either   9 scratch   10 bytes between threads
                      11 N_ROWS or N_OUT (which rows of the step block)   12 bias f32[k] or 0 (layer_norm)   15 counter
    rms_columns       1 x   2 bytes from row to row   3 weight f32[k]   4 k   5 eps (f32)   15 counter

    layer_rows        as rms_columns; 6 bias f32[k]

    rms_norm          y = x / sqrt(mean(x^2) + eps) * w (Zhang and Sennrich 2019, arXiv:1910.07467)
    layer_norm        y = (x - mean(x)) / sqrt(var(x) + eps) * w + bias (Ba et al. 2016, arXiv:1607.06450)

Sums in f32 over two chains of lanes.
"""

from engine.kernels.act import emit
from engine.kernels.chunks import rows_of
from engine.kernels.jit import inner, op
from engine.kernels.simd import (
    add_f32x8, f32, fma_f32x8, ld_f32, ld_f32x8, ld_i64, mul_f32x8, sp_f32x8, st_f32x8, sub_f32x8, sum_f32x8, z_f32x8,
)  # fmt: skip
from engine.kernels.step import N_OUT, N_ROWS, OUT_ROWS, REPLICATE
from engine.kernels.sync import atomic_add

import numpy as np  # isort: skip


@inner
def normalise(x, w, k, eps, out):
    """One row of k floats, a multiple of 16 (or of 8: the second chain then ends one vector earlier)."""
    a, b = z_f32x8(), z_f32x8()
    for i in range(0, k * 4 - 32, 64):
        u, v = ld_f32x8(x + i), ld_f32x8(x + i + 32)
        a, b = fma_f32x8(u, u, a), fma_f32x8(v, v, b)
    if k % 16:
        u = ld_f32x8(x + k * 4 - 32)
        a = fma_f32x8(u, u, a)
    scale = sp_f32x8(f32(1.0) / np.sqrt(sum_f32x8(add_f32x8(a, b)) / f32(k) + eps))
    for i in range(0, k * 4, 32):
        st_f32x8(out + i, mul_f32x8(mul_f32x8(ld_f32x8(x + i), scale), ld_f32x8(w + i)))


@inner
def centred(x, w, bias, k, eps, out):
    """One row of k floats, a multiple of 8: the mean first, then what is left around it."""
    a, b = z_f32x8(), z_f32x8()
    for i in range(0, k * 4 - 32, 64):
        a, b = add_f32x8(ld_f32x8(x + i), a), add_f32x8(ld_f32x8(x + i + 32), b)
    if k % 16:
        a = add_f32x8(ld_f32x8(x + k * 4 - 32), a)
    mean = sp_f32x8(sum_f32x8(add_f32x8(a, b)) / f32(k))
    a, b = z_f32x8(), z_f32x8()
    for i in range(0, k * 4 - 32, 64):
        u, v = sub_f32x8(ld_f32x8(x + i), mean), sub_f32x8(ld_f32x8(x + i + 32), mean)
        a, b = fma_f32x8(u, u, a), fma_f32x8(v, v, b)
    if k % 16:
        u = sub_f32x8(ld_f32x8(x + k * 4 - 32), mean)
        a = fma_f32x8(u, u, a)
    scale = sp_f32x8(f32(1.0) / np.sqrt(sum_f32x8(add_f32x8(a, b)) / f32(k) + eps))
    for i in range(0, k * 4, 32):
        y = mul_f32x8(sub_f32x8(ld_f32x8(x + i), mean), scale)
        shift = ld_f32x8(bias + i) if bias != 0 else z_f32x8()
        st_f32x8(out + i, fma_f32x8(y, ld_f32x8(w + i), shift))


@inner
def _rows(o, tid, nth, st, is_centred):
    x, ldx, w, k, eps = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32), ld_f32(o + 40)
    plain, blocks, copies = ld_i64(o + 48), ld_i64(o + 56), ld_i64(o + 64)
    scratch, which = ld_i64(o + 72) + tid * ld_i64(o + 80), ld_i64(o + 88)
    T = ld_i64(st + which)
    if T <= REPLICATE:  # every thread makes its own copy of the few rows: no barrier before the matrices
        plain += tid * copies if plain else 0
        blocks += tid * copies if blocks else 0
    first, end = rows_of(ld_i64(o + 120), T, nth, 0)
    while first < end:
        for t in range(first, end):
            row = ld_i64(ld_i64(st + OUT_ROWS) + t * 8) if which == N_OUT else t
            if is_centred:
                centred(x + row * ldx, w, ld_i64(o + 96), k, eps, scratch)
            else:
                normalise(x + row * ldx, w, k, eps, scratch)
            emit(scratch, k, plain, blocks, T, t)
        first, end = rows_of(ld_i64(o + 120), T, nth, end)


@op
def rms_norm(o, tid, nth, st):
    _rows(o, tid, nth, st, False)


@op
def layer_norm(o, tid, nth, st):
    _rows(o, tid, nth, st, True)


@op
def rms_columns(o, tid, nth, st):
    """The first k floats of every row, in place."""
    x, ldx, w, k, eps = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32), ld_f32(o + 40)
    counter, T = ld_i64(o + 120), ld_i64(st + N_ROWS)
    while True:
        t = atomic_add(counter, 1)
        if t >= T:
            return
        normalise(x + t * ldx, w, k, eps, x + t * ldx)


@op
def layer_rows(o, tid, nth, st):
    """The first k floats of every row, in place: what a block of an encoder ends with."""
    x, ldx, w, k, eps = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32), ld_f32(o + 40)
    counter, T = ld_i64(o + 120), ld_i64(st + N_ROWS)
    while True:
        t = atomic_add(counter, 1)
        if t >= T:
            return
        centred(x + t * ldx, w, ld_i64(o + 48), k, eps, x + t * ldx)
