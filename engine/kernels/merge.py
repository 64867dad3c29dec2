"""The attention's partials, blended into the output projection's activations. Not here: the blend (attention.py).

    merged record   1 partials   2 max_tiles   3 layer block (attention.py)   4 floats of a row   5 act f32 or 0
                    6 act q32 or 0   7 bytes between threads' copies   8 scratch   9 bytes between threads
                    10 weight of an RMS norm of the whole row f32 or 0   11 its eps (f32)   15 counter
"""

from engine.kernels.act import emit
from engine.kernels.attention import merge_row
from engine.kernels.chunks import rows_of
from engine.kernels.jit import op
from engine.kernels.norm import normalise
from engine.kernels.simd import ld_f32, ld_i64
from engine.kernels.step import N_ROWS, REPLICATE


@op
def merged(o, tid, nth, st):
    partials, max_tiles, layer, width = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32)
    plain, blocks, copies = ld_i64(o + 40), ld_i64(o + 48), ld_i64(o + 56)
    weight, eps = ld_i64(o + 80), ld_f32(o + 88)
    out, T = ld_i64(o + 64) + tid * ld_i64(o + 72), ld_i64(st + N_ROWS)
    if T <= REPLICATE:
        plain += tid * copies if plain else 0
        blocks += tid * copies if blocks else 0
    first, end = rows_of(ld_i64(o + 120), T, nth, 0)
    while first < end:
        for t in range(first, end):
            merge_row(st, t, partials, max_tiles, layer, out)
            if weight != 0:
                normalise(out, weight, width, eps, out)
            emit(out, width, plain, blocks, T, t)
        first, end = rows_of(ld_i64(o + 120), T, nth, end)
