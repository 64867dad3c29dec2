"""Rows of the embedding table for the step's tokens. Not here: how a row is stored (quants/, `unpack_row`).

    embed record   1 table   2 bytes of a row   3 blocks in a row   4 address of unpack_row   5 x   6 bytes per row of x
                   7 scale (f32; 0: none)

    embed_read     1 fd   2 offset of the table   3 bytes of a row   4 blocks in a row   5 address of unpack_row   6 x
                   7 bytes per row of x   8 scratch   9 bytes between threads   10 ring, for errors (ring.py)
                   11 scale (f32; 0: none)

The table is never loaded whole: a token touches one row of it. A mapped page that is gone (a file cut short) would be a
signal and the end of the process, so a streamed model reads its rows.
"""

from engine.kernels.disk import read_at
from engine.kernels.jit import inner, op
from engine.kernels.ring import fail, note_fault
from engine.kernels.simd import f32, ld_f32, ld_f32x8, ld_i64, mul_f32x8, sp_f32x8, st_f32x8
from engine.kernels.step import N_ROWS, TOKENS
from engine.kernels.sync import invoke_row


@inner
def _scale(x, n_bytes, scale):
    """A row of a multiple of eight floats, if there is a scale."""
    if scale != f32(0.0):
        for i in range(0, n_bytes, 32):
            st_f32x8(x + i, mul_f32x8(ld_f32x8(x + i), sp_f32x8(scale)))


@op
def embed(o, tid, nth, st):
    tokens = ld_i64(st + TOKENS)
    for t in range(tid, ld_i64(st + N_ROWS), nth):
        row = ld_i64(o + 8) + ld_i64(tokens + t * 8) * ld_i64(o + 16)
        x = ld_i64(o + 40) + t * ld_i64(o + 48)
        invoke_row(ld_i64(o + 32), row, ld_i64(o + 24), x)
        _scale(x, ld_i64(o + 48), ld_f32(o + 56))


@op
def embed_read(o, tid, nth, st):
    tokens, row_bytes = ld_i64(st + TOKENS), ld_i64(o + 24)
    row = ld_i64(o + 64) + tid * ld_i64(o + 72)
    for t in range(tid, ld_i64(st + N_ROWS), nth):
        offset = ld_i64(o + 16) + ld_i64(tokens + t * 8) * row_bytes
        code = read_at(ld_i64(o + 8), row, row_bytes, offset, row_bytes)
        if code != 0:
            note_fault(ld_i64(o + 80), code, offset)
            fail(ld_i64(o + 80), st)
            return
        x = ld_i64(o + 48) + t * ld_i64(o + 56)
        invoke_row(ld_i64(o + 40), row, ld_i64(o + 32), x)
        _scale(x, ld_i64(o + 56), ld_f32(o + 88))
