"""A matrix for each head, times that head's activations, in one op. Not here: the formats' kernels (quants/).

    heads record   1 w   2 its kernel   3 acts of the heads (latent.py)   4 bytes of an act's row   5 blocks in a row
                   6 y f32 [rows][ld], at head 0   7 ld (bytes)   8 bytes from head to head in y   9 panels of a head
                   10 first panel of this op   11 panels of it   12 scratch   13 bytes between threads
                   14 fewest panels at once   15 counter

The heads' matrices lie one after the other: one matrix of n_heads * n rows, of which this op may have a stretch.
"""

from engine.kernels.chunks import take
from engine.kernels.jit import op
from engine.kernels.matmul import multiply
from engine.kernels.simd import ld_i64
from engine.kernels.step import N_ROWS


@op
def heads(o, tid, nth, st):
    w, body, acts, row_bytes, blocks = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32), ld_i64(o + 40)
    y, ldy, stride, each = ld_i64(o + 48), ld_i64(o + 56), ld_i64(o + 64), ld_i64(o + 72)
    first, n_panels, T = ld_i64(o + 80), ld_i64(o + 88), ld_i64(st + N_ROWS)
    scratch = ld_i64(o + 96) + tid * ld_i64(o + 104)
    while True:
        begin, end = take(ld_i64(o + 120), n_panels, nth, ld_i64(o + 112), n_panels)
        if begin == n_panels:
            break
        while begin < end:
            h = (first + begin) // each
            stop = min(end, (h + 1) * each - first)
            at = y + h * stride + (first - h * each) * 32  # kernels write at y + 32 * panel
            multiply(body, w, acts + h * T * row_bytes, T, blocks, at, ldy, begin, stop, scratch, 0)
            begin = stop
