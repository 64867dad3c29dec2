"""Hidden rows to the activations of what follows: a curve, a norm of the whole row. Not here: the curves (curves.py).

    hidden record   1 x f32 [rows][k]   2 k   3 act f32 or 0   4 act q32 or 0   5 bytes between threads' copies
                    6 scratch   7 bytes between threads   8 weight of an RMS norm f32[k] or 0   9 its eps (f32)
                    10 curve (curves.py; 0 none)   15 counter

A feed-forward without a gate bends here (StarCoder2), one with sub-norms is normalised here (BitNet); one with neither
goes the shorter way of act.activate.
"""

from engine.kernels.act import copy, emit
from engine.kernels.chunks import rows_of
from engine.kernels.curves import PLAIN, bend
from engine.kernels.jit import op
from engine.kernels.norm import normalise
from engine.kernels.simd import ld_f32, ld_i64
from engine.kernels.step import N_ROWS, REPLICATE


@op
def hidden(o, tid, nth, st):
    x, k, plain, blocks, copies = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32), ld_i64(o + 40)
    scratch, T = ld_i64(o + 48) + tid * ld_i64(o + 56), ld_i64(st + N_ROWS)
    weight, eps, curve = ld_i64(o + 64), ld_f32(o + 72), ld_i64(o + 80)
    if T <= REPLICATE:
        plain += tid * copies if plain else 0
        blocks += tid * copies if blocks else 0
    first, end = rows_of(ld_i64(o + 120), T, nth, 0)
    while first < end:
        for t in range(first, end):
            copy(x + t * k * 4, k, scratch)  # with few rows all threads read x, so none may spoil it
            if curve != PLAIN:
                bend(scratch, k, curve)
            if weight != 0:
                normalise(scratch, weight, k, eps, scratch)
            emit(scratch, k, plain, blocks, T, t)
        first, end = rows_of(ld_i64(o + 120), T, nth, end)
