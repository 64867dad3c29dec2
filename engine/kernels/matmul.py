"""A matrix times the step's activations, chunk by chunk. Not here: the loops of a block format (quants/).

    matmul record   1 w   2 address of the format's `panels` or `rows`   3 act   4 bytes between threads' copies
                    5 blocks in a row   6 y   7 bytes from token to token of y   8 panels   9 add to y?
                    10 scratch   11 bytes between threads   12 N_ROWS or N_OUT   13 fewest panels at once
                    14 bias f32[8 * panels] or 0, joins y behind the product   15 counter

Chunks of panels are handed out by a counter, the last ones small, so a slow core takes fewer.
"""

from engine.kernels.chunks import take
from engine.kernels.jit import inner, op
from engine.kernels.simd import add_f32x8, ld_f32x8, ld_i64, st_f32x8
from engine.kernels.step import REPLICATE
from engine.kernels.sync import invoke_matmul

TOKENS = 128  # tokens of a tile that share one pass over a chunk of panels
GROUP = 8  # panels that meet a segment of the activations before the next segment


def scratch_bytes(panel_bytes: int) -> int:
    """What a format's kernel wants for itself on one thread, on whole lines: accumulators, two panels of file rows."""
    return -(-(TOKENS * GROUP * 32 + 2 * panel_bytes) // 64) * 64


@inner
def multiply(body, w, act, T, n, y, ldy, p0, p1, scratch, add):
    """Panels p0..p1 for all T tokens, TOKENS at a time."""
    for t0 in range(0, T, TOKENS):
        invoke_matmul(body, w, act, T, t0, min(t0 + TOKENS, T), n, y, ldy, p0, p1, scratch, add)


@inner
def add_bias(y, ldy, T, bias, p0, p1):
    """The bias of panels p0..p1 to T rows of y."""
    for t in range(T):
        for i in range(p0 * 32, p1 * 32, 32):
            at = y + t * ldy + i
            st_f32x8(at, add_f32x8(ld_f32x8(at), ld_f32x8(bias + i)))


@op
def matmul(o, tid, nth, st):
    w, body, act, n = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 40)
    y, ldy, n_panels, add = ld_i64(o + 48), ld_i64(o + 56), ld_i64(o + 64), ld_i64(o + 72)
    scratch, T, counter = ld_i64(o + 80) + tid * ld_i64(o + 88), ld_i64(st + ld_i64(o + 96)), ld_i64(o + 120)
    bias = ld_i64(o + 112)
    if T <= REPLICATE:
        act += tid * ld_i64(o + 32)
    pairs, least = (n_panels + 1) // 2, (ld_i64(o + 104) + 1) // 2  # a pair side by side is faster than two alone
    while True:
        p0, p1 = take(counter, pairs, nth, least, pairs)
        if p0 == pairs:
            break
        last = min(2 * p1, n_panels)
        multiply(body, w, act, T, n, y, ldy, 2 * p0, last, scratch, add)
        if bias != 0:
            add_bias(y, ldy, T, bias, 2 * p0, last)
