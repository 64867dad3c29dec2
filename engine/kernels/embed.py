"""Rows of the embedding table for the step's tokens. Not here: how a row is stored (quants/, `unpack_row`).

    embed record   1 table   2 bytes of a row   3 blocks in a row   4 address of unpack_row   5 x   6 bytes per row of x

The table is read from the mapped file whatever the load mode: a token touches one row of it.
"""

from engine.kernels.jit import op
from engine.kernels.simd import ld_i64
from engine.kernels.step import N_ROWS, TOKENS
from engine.kernels.sync import invoke_row


@op
def embed(o, tid, nth, st):
    tokens = ld_i64(st + TOKENS)
    for t in range(tid, ld_i64(st + N_ROWS), nth):
        row = ld_i64(o + 8) + ld_i64(tokens + t * 8) * ld_i64(o + 16)
        invoke_row(ld_i64(o + 32), row, ld_i64(o + 24), ld_i64(o + 40) + t * ld_i64(o + 48))
