"""What a block gives joins the rows it came from, normalised: x += norm(y). Not here: the product y.

    joined record   1 x f32 [rows][k]   2 y f32 [rows][k]   3 k   4 weight of an RMS norm f32[k]   5 its eps (f32)
                    6 scratch   7 bytes between threads   15 counter

A product joins x by itself (matmul's `add`) where nothing stands between. Norms behind a block: Gemma 2 (arXiv:
2408.00118), OLMo 2 (arXiv:2501.00656).
"""

from engine.kernels.chunks import ROWS, take
from engine.kernels.jit import op
from engine.kernels.norm import normalise
from engine.kernels.simd import add_f32x8, ld_f32, ld_f32x8, ld_i64, st_f32x8
from engine.kernels.step import N_ROWS


@op
def joined(o, tid, nth, st):
    x, y, k, weight, eps = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32), ld_f32(o + 40)
    scratch, T = ld_i64(o + 48) + tid * ld_i64(o + 56), ld_i64(st + N_ROWS)
    while True:
        first, end = take(ld_i64(o + 120), T, nth, ROWS, T)
        if first == end:
            break
        for t in range(first, end):
            to = x + t * k * 4
            normalise(y + t * k * 4, weight, k, eps, scratch)
            for i in range(0, k * 4, 32):
                st_f32x8(to + i, add_f32x8(ld_f32x8(scratch + i), ld_f32x8(to + i)))
