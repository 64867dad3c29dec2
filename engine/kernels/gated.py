"""The gated feed-forward's first half in one op: curve(gate x) * (up x). Not here: curves (curves.py), what follows.

    record          1 gate w   2 its kernel   3 its act   4 blocks in its row   5 up w   6 its kernel   7 its act
                    8 blocks   9 bytes between threads' act copies   10 hidden rows of this op
                    11 out f32 [rows][n_ff], at its first one   12 scratch   13 bytes between threads
                    14 n_ff   15 counter
    scale_rows record   1 x f32 [rows][n]   2 n   3 w f32 [k]   4 act f32 [rows][k]   5 bytes between threads' copies
                        6 k   15 counter

A chunk is at most 64 hidden rows of both matrices for all tokens: the products never leave L2 and need no barrier of
their own (swiglu, geglu: Shazeer 2020, arXiv:2002.05202).
"""

from engine.kernels.act import copy
from engine.kernels.chunks import take
from engine.kernels.curves import GELU, RELU2, SILU, bend_times
from engine.kernels.jit import inner, op
from engine.kernels.matmul import multiply
from engine.kernels.simd import (
    add_f32x8, div_f32x8, f32, fma_f32x8, ld_f32x8, ld_i64, mul_f32x8, sp_f32x8, st_f32x8, sum_f32x8, z_f32x8,
)  # fmt: skip
from engine.kernels.step import N_ROWS, REPLICATE
from engine.kernels.sync import atomic_add
from engine.kernels.vmath import exp8

HIDDEN = 64  # most rows of gate and up in a chunk
FEWEST = 16  # with many tokens, where 64 take 0.2 ms and more and the others would wait for the last ones


@inner
def _gated(o, tid, nth, st, curve):
    T, n, n_ff = ld_i64(st + N_ROWS), ld_i64(o + 80), ld_i64(o + 112)
    copies = tid * ld_i64(o + 72) if T <= REPLICATE else 0
    gate_act, up_act = ld_i64(o + 24) + copies, ld_i64(o + 56) + copies
    out, counter = ld_i64(o + 88), ld_i64(o + 120)
    gate = ld_i64(o + 96) + tid * ld_i64(o + 104)
    up = gate + T * HIDDEN * 4
    scratch, ld = up + T * HIDDEN * 4, HIDDEN * 4
    n_panels = n // 8
    pairs, least = (n_panels + 1) // 2, HIDDEN // 16 if T <= REPLICATE else FEWEST // 16
    while True:
        q0, q1 = take(counter, pairs, nth, least, HIDDEN // 16)
        if q0 == q1:
            break
        p0, p1 = 2 * q0, min(2 * q1, n_panels)
        first, k = p0 * 8, (p1 - p0) * 8
        back = first * 4  # kernels write at y + 32 * panel; the scratch begins at this chunk
        multiply(ld_i64(o + 16), ld_i64(o + 8), gate_act, T, ld_i64(o + 32), gate - back, ld, p0, p1, scratch, 0)
        multiply(ld_i64(o + 48), ld_i64(o + 40), up_act, T, ld_i64(o + 64), up - back, ld, p0, p1, scratch, 0)
        for t in range(T):
            h = gate + t * HIDDEN * 4
            bend_times(h, up + t * HIDDEN * 4, k, curve)
            copy(h, k, out + (t * n_ff + first) * 4)


@op
def swiglu(o, tid, nth, st):
    _gated(o, tid, nth, st, SILU)


@op
def geglu(o, tid, nth, st):
    _gated(o, tid, nth, st, GELU)


@op
def reglu2(o, tid, nth, st):
    """The gate's squared relu (BitNet b1.58 2B4T: Ma et al. 2025, arXiv:2504.12285)."""
    _gated(o, tid, nth, st, RELU2)


@inner
def _dot(x, w, k):
    """k products, a multiple of 8, in eight chains."""
    total = z_f32x8()
    for i in range(0, k * 4, 32):
        total = fma_f32x8(ld_f32x8(x + i), ld_f32x8(w + i), total)
    return sum_f32x8(total)


@op
def scale_rows(o, tid, nth, st):
    """Each row of x times sigmoid(w . its act): the gate of an expert that all rows go through."""
    x, n, w, act, k = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32), ld_i64(o + 48)
    T = ld_i64(st + N_ROWS)
    if T <= REPLICATE:
        act += tid * ld_i64(o + 40)
    while True:
        t = atomic_add(ld_i64(o + 120), 1)
        if t >= T:
            return
        one, row = sp_f32x8(f32(1.0)), x + t * n * 4
        share = div_f32x8(one, add_f32x8(one, exp8(sp_f32x8(-_dot(act + t * k * 4, w, k)))))
        for i in range(0, n * 4, 32):
            st_f32x8(row + i, mul_f32x8(ld_f32x8(row + i), share))
