"""Attention over pages of keys and values, in tiles of 256 positions. Not here: K and V types (kv*.py), rotation.

Every row is computed the same way whoever computes it: per tile a partial (greatest score, sum, weighted values), tiles
blended ascending by one function. Few rows: each tile is a unit of its own and `merge_row` blends. More rows: a unit is
a kv head of some neighbouring rows, which share each read of K and V, and it blends as it goes. Bits are the same.

    parts   f32 [row][tile][n_heads][8 + v_dim]: greatest score, sum, six unused, weighted values
            n_rows <= REPLICATE: max_tiles tiles a row, else 1

A layer's constants stand in a block that `layer_block` makes. A window lets a row see positions > its own - window
(tiles wholly outside are not visited), a soft cap turns a score s into cap * tanh(s / cap), sinks (one logit per head)
join a softmax's sum and carry no value.

The op that follows (after a barrier) reads a row's result with

    merge_row(st, row, parts, max_tiles, layer, out)      out f32 [n_heads * v_dim], in the caller
    merge_head(st, row, h, parts, max_tiles, layer, out)  one head of it, out f32 [v_dim]
"""

import importlib
from typing import Any

import numpy as np

from engine.kernels.curves import capped8
from engine.kernels.jit import inner, op
from engine.kernels.kv import TILE, WIDTH, page_of
from engine.kernels.program import Buffer
from engine.kernels.simd import (
    add_f32x8, div_f32x8, fma_f32x8, i32_of, ld_f32, ld_f32x8, ld_i64, mul_f32x8, sp_f32x8, st_f32, st_f32x8,
    sub_f32x8, sum_f32x8, top_f32x8, z_f32x8,
)  # fmt: skip
from engine.kernels.step import N_ROWS, PAGE, PAGES, REPLICATE, SEEN
from engine.kernels.sync import atomic_add, invoke_row, invoke_scores
from engine.kernels.vmath import exp8, greater, head_only, lane0

LD, N_HEADS, N_KV, K_DIM, V_DIM, LAYER, HEAD_BYTES, K_BYTES, WINDOW, SINKS, SOFT_CAP, TABLE = range(0, 96, 8)
HEADER = 32  # bytes before the values of a partial
MASKED = np.float32(-1e30)
ROWS = WIDTH  # most rows that share reads: whatever the group, their queries are whole sets of WIDTH
FIRST = 64  # `scores` and `mix` begin at a multiple of it
SHARE = 4 * WIDTH  # most queries of a kv head and a tile in one unit: with few rows there are threads for more


def kv_module(kv_type: str) -> Any:
    """The module of a K or V type: put_k, put_v, prepare, scores, mix (kv.py)."""
    return importlib.import_module(f"engine.kernels.kv_{kv_type}")


def layer_block(
    ld: int, n_heads: int, n_kv_heads: int, k_dim: int, offset: int, head_bytes: int, k_bytes: int,
    window: int = 0, soft_cap: float = 0.0, sinks: int = 0, table: int = 0, v_dim: int = 0,
) -> Buffer:  # fmt: skip
    """A layer's constants: floats of a row of qkv, heads, their width, offset in a page, bytes of one kv head there (K
    and V), its K bytes; positions a row sees (0: all), soft cap (0: none), address of f32 [n_heads] sinks (0: none);
    bytes from the start of a page table to the layer's part of it; width of values (0: k_dim)."""
    v_dim = v_dim or k_dim
    assert k_dim % 8 == v_dim % 8 == 0 and n_heads % n_kv_heads == 0 and window >= 0 and soft_cap >= 0.0
    block = Buffer(96)
    block.view(np.int64)[:10] = ld, n_heads, n_kv_heads, k_dim, v_dim, offset, head_bytes, k_bytes, window, sinks
    block.view(np.float32)[SOFT_CAP // 4] = soft_cap
    block.view(np.int64)[TABLE // 8] = table
    return block


def parts_bytes(max_rows: int, max_tiles: int, n_heads: int, v_dim: int) -> int:
    """Size of `parts` for steps of up to max_rows rows over contexts of up to max_tiles pages."""
    return max(REPLICATE * max_tiles, max_rows) * n_heads * (HEADER + v_dim * 4)


def scratch_bytes(n_heads: int, n_kv_heads: int, k_dim: int, v_dim: int = 0) -> int:
    """Scratch of one thread: prepared queries, WIDTH scores and a copy of them scaled, WIDTH partials."""
    return ROWS * (n_heads // n_kv_heads) * k_dim * 4 + WIDTH * (2 * TILE + HEADER + (v_dim or k_dim) * 4)


@inner
def _position(st, row):
    """The last position that a row sees: its own, but in an encoder."""
    return ld_i64(ld_i64(st + SEEN) + row * 8)


@inner
def _lowest(position, window):
    """The first position that a row sees."""
    return max(0, position - window + 1) if window > 0 else 0


@inner
def _soften(s, first, low, n, n_all, cap, head):
    """Scores low..n-1 at s become weights e^(score - greatest), others of first..n_all-1 zeros; greatest and sum to
    head. The sum has eight lanes (position % 8), each ascending, folded by a fixed tree."""
    begin, end, masked = low // 8 * 32, (n + 7) // 8 * 32, sp_f32x8(MASKED)
    if cap > np.float32(0.0):
        for i in range(begin, end, 32):
            st_f32x8(s + i, capped8(ld_f32x8(s + i), cap))
    if n % 8 != 0:
        at = s + end - 32
        st_f32x8(at, head_only(i32_of(n % 8), ld_f32x8(at), masked))
    if low % 8 != 0:
        st_f32x8(s + begin, head_only(i32_of(low % 8), masked, ld_f32x8(s + begin)))
    top, total = masked, z_f32x8()
    for i in range(begin, end, 32):
        top = greater(ld_f32x8(s + i), top)
    top = sp_f32x8(top_f32x8(top))
    for i in range(first * 4, begin, 32):
        st_f32x8(s + i, z_f32x8())
    for i in range(begin, end, 32):
        e = exp8(sub_f32x8(ld_f32x8(s + i), top))
        st_f32x8(s + i, e)
        total = add_f32x8(total, e)
    for i in range(max(end, begin), n_all * 4, 32):
        st_f32x8(s + i, z_f32x8())
    st_f32(head, lane0(top))
    st_f32(head + 4, sum_f32x8(total))


@inner
def _partials(o, st, row, i, m, group, tile, kv, q, w, out):
    """Partials of queries i..i+m-1 (m <= WIDTH) of the rows from `row`, `group` queries a row, with one tile; to `out`.

    A row that ends before this tile, or sees only what lies behind it, gets a partial nobody may read."""
    layer, start = ld_i64(o + 16), tile * PAGE
    k_dim, v_dim, window = ld_i64(layer + K_DIM), ld_i64(layer + V_DIM), ld_i64(layer + WINDOW)
    q_bytes, cap, out_bytes = k_dim * 4, ld_f32(layer + SOFT_CAP), HEADER + v_dim * 4
    keys = page_of(st, row, tile, ld_i64(layer + TABLE)) + ld_i64(layer + LAYER) + kv * ld_i64(layer + HEAD_BYTES)
    n = min(PAGE, _position(st, row + (i + m - 1) // group) + 1 - start)
    first = max(0, _lowest(_position(st, row + i // group), window) - start) // FIRST * FIRST
    invoke_scores(ld_i64(o + 32), keys, q + i * q_bytes, q_bytes, m, first, n, k_dim, w)
    for j in range(m):
        position = _position(st, row + (i + j) // group)
        own = min(n, position + 1 - start)
        low = max(first, _lowest(position, window) - start)
        if low >= own:
            low, own = first, first
        _soften(w + j * TILE, first, low, own, n, cap, out + j * out_bytes)
    values = keys + ld_i64(layer + K_BYTES)
    invoke_scores(ld_i64(o + 40), values, w, m, first, n, v_dim, out + HEADER, out_bytes)


@inner
def blend(top, total, values, part, v_dim):
    """Blend a partial into a state (greatest score, sum, values in place); returns the new greatest score and sum."""
    other = ld_f32(part)
    joint = sp_f32x8(top if top > other else other)
    a, b = exp8(sub_f32x8(sp_f32x8(top), joint)), exp8(sub_f32x8(sp_f32x8(other), joint))
    for d in range(0, v_dim * 4, 32):
        st_f32x8(values + d, fma_f32x8(ld_f32x8(part + HEADER + d), b, mul_f32x8(ld_f32x8(values + d), a)))
    return lane0(joint), total * lane0(a) + ld_f32(part + 4) * lane0(b)


@inner
def _copy(source, out, n_bytes):
    for i in range(0, n_bytes, 32):
        st_f32x8(out + i, ld_f32x8(source + i))


@inner
def _close(top, total, values, sink, v_dim):
    """Divide by the sum; a sink (an address, or 0) joins it first."""
    a, whole = sp_f32x8(np.float32(1.0)), sp_f32x8(total)
    if sink != 0:
        logit = ld_f32(sink)
        joint = sp_f32x8(top if top > logit else logit)
        a = exp8(sub_f32x8(sp_f32x8(top), joint))
        whole = add_f32x8(mul_f32x8(whole, a), exp8(sub_f32x8(sp_f32x8(logit), joint)))
    for d in range(0, v_dim * 4, 32):
        st_f32x8(values + d, div_f32x8(mul_f32x8(ld_f32x8(values + d), a), whole))


@inner
def merge_head(st, row, h, parts, max_tiles, layer, out):
    """Blend the partials of a row's head, tiles ascending, and divide by the sum: out f32 [v_dim]."""
    n_heads, v_dim, sinks = ld_i64(layer + N_HEADS), ld_i64(layer + V_DIM), ld_i64(layer + SINKS)
    part_bytes, first, n_tiles, row_tiles = HEADER + v_dim * 4, 0, 1, 1
    if ld_i64(st + N_ROWS) <= REPLICATE:
        position = _position(st, row)
        first, row_tiles = _lowest(position, ld_i64(layer + WINDOW)) // PAGE, max_tiles
        n_tiles = position // PAGE + 1 - first
    part = parts + ((row * row_tiles + first) * n_heads + h) * part_bytes
    top, total = ld_f32(part), ld_f32(part + 4)
    _copy(part + HEADER, out, v_dim * 4)
    for _ in range(1, n_tiles):
        part += n_heads * part_bytes
        top, total = blend(top, total, out, part, v_dim)
    _close(top, total, out, sinks + h * 4 if sinks != 0 else 0, v_dim)


@inner
def merge_row(st, row, parts, max_tiles, layer, out):
    """All heads of a row: out f32 [n_heads * v_dim]."""
    for h in range(ld_i64(layer + N_HEADS)):
        merge_head(st, row, h, parts, max_tiles, layer, out + h * ld_i64(layer + V_DIM) * 4)


@inner
def _tiles_apart(o, st, n_rows, group, w, queries):
    """Units: (row, tile, kv head, up to SHARE of its queries)."""
    layer = ld_i64(o + 16)
    n_heads, n_kv, window = ld_i64(layer + N_HEADS), ld_i64(layer + N_KV), ld_i64(layer + WINDOW)
    part_bytes, shares = HEADER + ld_i64(layer + V_DIM) * 4, (group + SHARE - 1) // SHARE
    while True:
        c, row, first = atomic_add(ld_i64(o + 120), 1), 0, 0
        while row < n_rows:
            position = _position(st, row)
            first = _lowest(position, window) // PAGE
            n_units = (position // PAGE + 1 - first) * n_kv * shares
            if c < n_units:
                break
            c -= n_units
            row += 1
        if row == n_rows:
            return
        tile, kv, begin = first + c // (n_kv * shares), c // shares % n_kv, c % shares * SHARE
        end = min(group, begin + SHARE)
        _prepare(o, row, begin, end, group, kv, queries)
        out = ld_i64(o + 48) + ((row * ld_i64(o + 56) + tile) * n_heads + kv * group) * part_bytes
        for i in range(begin, end, WIDTH):
            _partials(o, st, row, i, min(WIDTH, end - i), group, tile, kv, queries, w, out + i * part_bytes)


@inner
def _prepare(o, row, begin, end, group, kv, queries):
    """The queries begin..end-1 of one kv head and the rows from `row`, made ready for the K type."""
    ld, k_dim = ld_i64(ld_i64(o + 16) + LD), ld_i64(ld_i64(o + 16) + K_DIM)
    for i in range(begin, end):
        q = ld_i64(o + 8) + ((row + i // group) * ld + (kv * group + i % group) * k_dim) * 4
        invoke_row(ld_i64(o + 24), q, k_dim, queries + i * k_dim * 4)


@inner
def _run(o, st, row, n, group, kv, queries, w):
    """n neighbouring rows of one sequence with one kv head, tiles ascending, the state in `parts`."""
    layer = ld_i64(o + 16)
    n_heads, v_dim, window = ld_i64(layer + N_HEADS), ld_i64(layer + V_DIM), ld_i64(layer + WINDOW)
    part_bytes, out = HEADER + v_dim * 4, w + 2 * WIDTH * TILE
    _prepare(o, row, 0, n * group, group, kv, queries)
    for tile in range(_lowest(_position(st, row), window) // PAGE, _position(st, row + n - 1) // PAGE + 1):
        for i in range(0, n * group, WIDTH):
            m = min(WIDTH, n * group - i)
            opens = _lowest(_position(st, row + i // group), window) // PAGE
            if tile < opens or _position(st, row + (i + m - 1) // group) < tile * PAGE:
                continue
            _partials(o, st, row, i, m, group, tile, kv, queries, w, out)
            for j in range(m):
                r = row + (i + j) // group
                opens = _lowest(_position(st, r), window) // PAGE
                if opens <= tile and _position(st, r) >= tile * PAGE:
                    part = out + j * part_bytes
                    state = ld_i64(o + 48) + (r * n_heads + kv * group + (i + j) % group) * part_bytes
                    if tile == opens:
                        _copy(part, state, part_bytes)
                    else:
                        top, total = blend(ld_f32(state), ld_f32(state + 4), state + HEADER, part, v_dim)
                        st_f32(state, top)
                        st_f32(state + 4, total)


@inner
def _rows_together(o, nth, st, n_rows, group, w, queries):
    """Units: (some rows, kv head); neighbours of one sequence share reads."""
    n_kv, tables = ld_i64(ld_i64(o + 16) + N_KV), ld_i64(st + PAGES)
    rows = max(1, min(ROWS, n_rows * n_kv // (nth * 4)))
    n_units = (n_rows + rows - 1) // rows * n_kv
    while True:
        c = atomic_add(ld_i64(o + 120), 1)
        if c >= n_units:
            return
        row, kv = c // n_kv * rows, c % n_kv
        end = min(n_rows, row + rows)
        while row < end:
            n = 1
            while row + n < end and ld_i64(tables + (row + n) * 8) == ld_i64(tables + row * 8):
                n += 1
            _run(o, st, row, n, group, kv, queries, w)
            row += n


@op
def attend(o, tid, nth, st):
    """Partials of every row and head of this step.

    words: 1 rotated and scaled queries: column 0 of qkv f32 [rows][ld]; 2 layer block; 3 prepare, 4 scores (of the K
    type), 5 mix (of the V type); 6 parts; 7 max_tiles; 8 scratch (scratch_bytes() a thread); 15 counter.
    """
    layer = ld_i64(o + 16)
    n_rows, k_dim, v_dim = ld_i64(st + N_ROWS), ld_i64(layer + K_DIM), ld_i64(layer + V_DIM)
    group = ld_i64(layer + N_HEADS) // ld_i64(layer + N_KV)
    n_queries = ROWS * group * k_dim * 4
    queries = ld_i64(o + 64) + tid * (n_queries + WIDTH * (2 * TILE + HEADER + v_dim * 4))
    if n_rows <= REPLICATE:
        _tiles_apart(o, st, n_rows, group, queries + n_queries, queries)
    else:
        _rows_together(o, nth, st, n_rows, group, queries + n_queries, queries)
