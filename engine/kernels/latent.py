"""Attention over one compressed row per position (MLA): queries, keys and results on their way. Not here: softmax.

Of a query's n floats before the rotated ones W_k makes `rank` floats that meet the compressed row itself, so a position
is kept once for all heads: a key is (row, rotated), a value is the row; W_v turns a head's weighted row into its result
(DeepSeek-V2, arXiv:2405.04434, section 2.1). Files of old have W_k and W_v as one matrix, which cannot be turned
around: there each head's keys and values are made and kept (`store_heads`).

    turn_queries record   1 q f32 [rows][ld], heads of plain + rope_dim   2 ld (floats)   3 n_heads   4 plain
                          5 rope_dim   6 table   7 scale (f32)   8 out f32 [rows][ld], heads of rank + rope_dim
                          9 its ld   10 rank   11 acts of the heads f32 or 0   12 q32 or 0   13 scratch
                          14 bytes between threads   15 counter
    store_row record      1 x f32 [rows][ld]: row, rotated   2 ld   3 rank   4 rope_dim   5 table   6 weight f32 [rank]
                          7 its eps   8 layer block (attention.py)   9 put_k   10 put_v   15 counter
    store_heads record    1 kv f32 [rows][ld], heads of plain + v_dim   2 ld   3 n_heads   4 plain   5 v_dim
                          6 rotated f32 [rows][ld]   7 its ld   8 rope_dim   9 table   10 layer block   11 put_k
                          12 put_v   15 counter
    merge_heads record    1 partials   2 max_tiles   3 layer block   4 v_dim   5 acts of the heads f32 or 0
                          6 q32 or 0   7 scratch   8 bytes between threads   15 counter

Acts of the heads: each head's rows are an act of their own, head after head.
"""

from engine.kernels.act import BLOCK, copy, emit
from engine.kernels.attention import HEAD_BYTES, K_BYTES, LAYER, N_HEADS, TABLE, merge_head
from engine.kernels.jit import inner, op
from engine.kernels.kv import page_of
from engine.kernels.norm import normalise
from engine.kernels.rope import rope
from engine.kernels.simd import ld_f32, ld_f32x8, ld_i64, mul_f32x8, sp_f32x8, st_f32x8
from engine.kernels.step import N_ROWS, PAGE, POSITIONS
from engine.kernels.sync import atomic_add, invoke_put


@inner
def head_act(plain, blocks, k, T, h):
    """Where head h's acts of T rows of k lie, in both formats."""
    return (plain + h * T * k * 4 if plain != 0 else 0), (blocks + h * (k // 32 * T * 2 * BLOCK) if blocks != 0 else 0)


@inner
def _position(st, row):
    return ld_i64(ld_i64(st + POSITIONS) + row * 8)


@op
def turn_queries(o, tid, nth, st):
    """Rotate, scale; what is not rotated becomes acts for W_k, what is goes behind the place of W_k's result."""
    q, ld, n_heads, plain = ld_i64(o + 8), ld_i64(o + 16) * 4, ld_i64(o + 24), ld_i64(o + 32)
    rope_dim, table, scale = ld_i64(o + 40), ld_i64(o + 48), sp_f32x8(ld_f32(o + 56))
    out, ld_out, rank = ld_i64(o + 64), ld_i64(o + 72) * 4, ld_i64(o + 80)
    scratch, T = ld_i64(o + 104) + tid * ld_i64(o + 112), ld_i64(st + N_ROWS)
    while True:
        c = atomic_add(ld_i64(o + 120), 1)
        if c >= T * n_heads:
            return
        row, h = c // n_heads, c % n_heads
        x = q + row * ld + h * (plain + rope_dim) * 4
        rope(x + plain * 4, table + _position(st, row) * rope_dim * 4, rope_dim, 0)
        for i in range(0, (plain + rope_dim) * 4, 32):
            st_f32x8(x + i, mul_f32x8(ld_f32x8(x + i), scale))
        copy(x + plain * 4, rope_dim, out + row * ld_out + (h * (rank + rope_dim) + rank) * 4)
        copy(x, plain, scratch)
        floats, blocks = head_act(ld_i64(o + 88), ld_i64(o + 96), plain, T, h)
        emit(scratch, plain, floats, blocks, T, row)


@op
def store_row(o, tid, nth, st):
    """Normalise (RMS) the compressed row, rotate what is behind it, store both as a key, the row as a value."""
    base, ld, rank, rope_dim = ld_i64(o + 8), ld_i64(o + 16) * 4, ld_i64(o + 24), ld_i64(o + 32)
    table, weight, eps, layer = ld_i64(o + 40), ld_i64(o + 48), ld_f32(o + 56), ld_i64(o + 64)
    while True:
        row = atomic_add(ld_i64(o + 120), 1)
        if row >= ld_i64(st + N_ROWS):
            return
        x, position = base + row * ld, _position(st, row)
        normalise(x, weight, rank, eps, x)
        rope(x + rank * 4, table + position * rope_dim * 4, rope_dim, 0)
        part = page_of(st, row, position // PAGE, ld_i64(layer + TABLE)) + ld_i64(layer + LAYER)
        invoke_put(ld_i64(o + 72), x, rank + rope_dim, position % PAGE, part)
        invoke_put(ld_i64(o + 80), x, rank, position % PAGE, part + ld_i64(layer + K_BYTES))


@op
def store_heads(o, tid, nth, st):
    """Store each head's value, then its key: the rotated floats, the same for all heads, take the value's place."""
    kv, ld, n_heads, plain = ld_i64(o + 8), ld_i64(o + 16) * 4, ld_i64(o + 24), ld_i64(o + 32)
    v_dim, rotated, ld_rotated = ld_i64(o + 40), ld_i64(o + 48), ld_i64(o + 56) * 4
    rope_dim, table, layer = ld_i64(o + 64), ld_i64(o + 72), ld_i64(o + 80)
    while True:
        c = atomic_add(ld_i64(o + 120), 1)
        if c >= ld_i64(st + N_ROWS) * n_heads:
            return
        row, h = c // n_heads, c % n_heads
        position = _position(st, row)
        x = kv + row * ld + h * (plain + v_dim) * 4
        part = page_of(st, row, position // PAGE, ld_i64(layer + TABLE)) + ld_i64(layer + LAYER)
        part += h * ld_i64(layer + HEAD_BYTES)
        invoke_put(ld_i64(o + 96), x + plain * 4, v_dim, position % PAGE, part + ld_i64(layer + K_BYTES))
        copy(rotated + row * ld_rotated, rope_dim, x + plain * 4)
        rope(x + plain * 4, table + position * rope_dim * 4, rope_dim, 0)
        invoke_put(ld_i64(o + 88), x, plain + rope_dim, position % PAGE, part)


@op
def merge_heads(o, tid, nth, st):
    """Each head's partials, blended into acts for W_v."""
    parts, max_tiles, layer, v_dim = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32)
    out, T, n_heads = ld_i64(o + 56) + tid * ld_i64(o + 64), ld_i64(st + N_ROWS), ld_i64(layer + N_HEADS)
    while True:
        c = atomic_add(ld_i64(o + 120), 1)
        if c >= T * n_heads:
            return
        row, h = c // n_heads, c % n_heads
        merge_head(st, row, h, parts, max_tiles, layer, out)
        floats, blocks = head_act(ld_i64(o + 40), ld_i64(o + 48), v_dim, T, h)
        emit(out, v_dim, floats, blocks, T, row)
