"""The gated feed-forward's first half in one op: curve(gate x) * (up x). Not here: curves (curves.py), what follows.

    record          1 gate w   2 its kernel   3 its act   4 blocks in its row   5 up w   6 its kernel   7 its act
                    8 blocks   9 bytes between threads' act copies   10 hidden rows of this op
                    11 out f32 [rows][n_ff], at its first one   12 scratch   13 bytes between threads
                    14 n_ff   15 counter

A chunk is at most 64 hidden rows of both matrices for all tokens: the products never leave L2 and need no barrier of
their own (swiglu, geglu: Shazeer 2020, arXiv:2002.05202).
"""

from engine.kernels.act import copy
from engine.kernels.chunks import take
from engine.kernels.curves import GELU, RELU2, SILU, bend_times
from engine.kernels.jit import inner, op
from engine.kernels.matmul import multiply
from engine.kernels.simd import ld_i64
from engine.kernels.step import N_ROWS, REPLICATE

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
