"""Rows of the embedding table for the step's tokens. Not here: how a row is stored (quants/, `unpack_row`).

    embed record   1 table   2 bytes of a row   3 blocks in a row   4 address of unpack_row   5 x   6 bytes per row of x

    embed_read     1 fd   2 offset of the table   3 bytes of a row   4 blocks in a row   5 address of unpack_row   6 x
                   7 bytes per row of x   8 scratch   9 bytes between threads   10 ring, for errors (ring.py)

The table is never loaded whole: a token touches one row of it. A mapped page that is gone (a file cut short) would be a
signal and the end of the process, so a streamed model reads its rows.
"""

from engine.kernels.disk import read_at
from engine.kernels.jit import op
from engine.kernels.ring import fail, note_fault
from engine.kernels.simd import ld_i64
from engine.kernels.step import N_ROWS, TOKENS
from engine.kernels.sync import invoke_row


@op
def embed(o, tid, nth, st):
    tokens = ld_i64(st + TOKENS)
    for t in range(tid, ld_i64(st + N_ROWS), nth):
        row = ld_i64(o + 8) + ld_i64(tokens + t * 8) * ld_i64(o + 16)
        invoke_row(ld_i64(o + 32), row, ld_i64(o + 24), ld_i64(o + 40) + t * ld_i64(o + 48))


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
        invoke_row(ld_i64(o + 40), row, ld_i64(o + 32), ld_i64(o + 48) + t * ld_i64(o + 56))
