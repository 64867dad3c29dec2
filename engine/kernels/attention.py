"""Attention over pages of keys and values, in tiles of 256 positions. Not here: K and V types (kv_*.py), rotation.

Every row is computed the same way whoever computes it: per tile a partial (greatest score, sum, weighted values), tiles
blended ascending by one function. Few rows: each tile is a unit of its own and `merge_row` blends. More rows: a unit is
a kv head of some neighbouring rows, which share each read of K and V, and it blends as it goes. Bits are the same.

    parts   f32 [row][tile][n_heads][8 + head_dim]: greatest score, sum, six unused, weighted values
            n_rows <= REPLICATE: max_tiles tiles a row, else 1

The op that follows (after a barrier) reads a row's result with

    merge_row(st, row, parts, max_tiles, n_heads, head_dim, out)      out f32 [n_heads * head_dim], in the caller
"""

import importlib
from typing import Any

import numpy as np

from engine.kernels.jit import inner, op
from engine.kernels.kv_f16 import TILE, page_of
from engine.kernels.simd import (
    add_f32x8, div_f32x8, fma_f32x8, i32_of, ld_f32, ld_f32x8, ld_i64, mul_f32x8, sp_f32x8, st_f32, st_f32x8,
    sub_f32x8, sum_f32x8, top_f32x8, z_f32x8,
)  # fmt: skip
from engine.kernels.step import N_ROWS, PAGE, PAGES, POSITIONS, REPLICATE
from engine.kernels.sync import atomic_add, invoke_row, invoke_scores
from engine.kernels.vmath import exp8, greater, head_only, lane0

HEADER = 32  # bytes before the values of a partial
MASKED = np.float32(-1e30)
ROWS = 8  # most rows that share reads


def kv_module(kv_type: str) -> Any:
    """The module of a K or V type: store_k_*, store_v_*, prepare_*, scores_*, mix_*."""
    return importlib.import_module(f"engine.kernels.kv_{kv_type}")


def parts_bytes(max_rows: int, max_tiles: int, n_heads: int, head_dim: int) -> int:
    """Size of `parts` for steps of up to max_rows rows over contexts of up to max_tiles pages."""
    return max(REPLICATE * max_tiles, max_rows) * n_heads * (HEADER + head_dim * 4)


def scratch_bytes(n_heads: int, n_kv_heads: int, head_dim: int) -> int:
    """Scratch of one thread: prepared queries, scores and a copy of them scaled, four partials."""
    return ROWS * (n_heads // n_kv_heads) * head_dim * 4 + 8 * TILE + 4 * (HEADER + head_dim * 4)


@inner
def _position(st, row):
    return ld_i64(ld_i64(st + POSITIONS) + row * 8)


@inner
def _soften(s, n, n_all, head):
    """Scores 0..n-1 at s become weights e^(score - greatest), those up to n_all zeros; writes greatest and sum to head.

    The sum has eight lanes (position % 8), each ascending, folded by a fixed tree."""
    full = n // 8 * 32
    masked, top = sp_f32x8(MASKED), sp_f32x8(MASKED)
    if n % 8 != 0:
        st_f32x8(s + full, head_only(i32_of(n % 8), ld_f32x8(s + full), masked))
    end = (n + 7) // 8 * 32
    for i in range(0, end, 32):
        top = greater(ld_f32x8(s + i), top)
    top = sp_f32x8(top_f32x8(top))
    total = z_f32x8()
    for i in range(0, end, 32):
        e = exp8(sub_f32x8(ld_f32x8(s + i), top))
        st_f32x8(s + i, e)
        total = add_f32x8(total, e)
    for i in range(end, n_all * 4, 32):
        st_f32x8(s + i, z_f32x8())
    st_f32(head, lane0(top))
    st_f32(head + 4, sum_f32x8(total))


@inner
def _partials(o, st, row, i, m, group, tile, kv, q, w, out):
    """Partials of queries i..i+m-1 (m <= 4) of the rows from `row`, `group` queries a row, with one tile; to `out`.

    A row that ends before this tile gets a partial nobody may read."""
    head_dim, q_bytes = ld_i64(o + 40), ld_i64(o + 40) * 4
    head_bytes, out_bytes = ld_i64(o + 56), HEADER + head_dim * 4
    keys = page_of(st, row, tile) + ld_i64(o + 48) + kv * head_bytes
    n = min(PAGE, _position(st, row + (i + m - 1) // group) + 1 - tile * PAGE)
    invoke_scores(ld_i64(o + 80), keys, q + i * q_bytes, q_bytes, m, n, head_dim, w)
    for j in range(m):
        own = min(n, _position(st, row + (i + j) // group) + 1 - tile * PAGE)
        _soften(w + j * TILE, max(own, 0), n, out + j * out_bytes)
    invoke_scores(ld_i64(o + 88), keys + ld_i64(o + 64), w, m, n, head_dim, out + HEADER, out_bytes)


@inner
def blend(top, total, values, part, head_dim):
    """Blend a partial into a state (greatest score, sum, values in place); returns the new greatest score and sum."""
    other = ld_f32(part)
    joint = sp_f32x8(top if top > other else other)
    a, b = exp8(sub_f32x8(sp_f32x8(top), joint)), exp8(sub_f32x8(sp_f32x8(other), joint))
    for d in range(0, head_dim * 4, 32):
        st_f32x8(values + d, fma_f32x8(ld_f32x8(part + HEADER + d), b, mul_f32x8(ld_f32x8(values + d), a)))
    return lane0(joint), total * lane0(a) + ld_f32(part + 4) * lane0(b)


@inner
def _copy(source, out, n_bytes):
    for i in range(0, n_bytes, 32):
        st_f32x8(out + i, ld_f32x8(source + i))


@inner
def merge_row(st, row, parts, max_tiles, n_heads, head_dim, out):
    """Blend the partials of a row, tiles ascending, and divide by the sum: out f32 [n_heads * head_dim]."""
    part_bytes = HEADER + head_dim * 4
    n_tiles, row_tiles = 1, 1
    if ld_i64(st + N_ROWS) <= REPLICATE:
        n_tiles, row_tiles = _position(st, row) // PAGE + 1, max_tiles
    for h in range(n_heads):
        part, values = parts + (row * row_tiles * n_heads + h) * part_bytes, out + h * head_dim * 4
        top, total = ld_f32(part), ld_f32(part + 4)
        _copy(part + HEADER, values, head_dim * 4)
        for _ in range(1, n_tiles):
            part += n_heads * part_bytes
            top, total = blend(top, total, values, part, head_dim)
        for d in range(0, head_dim * 4, 32):
            st_f32x8(values + d, div_f32x8(ld_f32x8(values + d), sp_f32x8(total)))


@inner
def _tiles_apart(o, st, n_rows, group, w, queries):
    """Units: (row, tile, kv head)."""
    n_heads, n_kv, head_dim = ld_i64(o + 24), ld_i64(o + 32), ld_i64(o + 40)
    part_bytes = HEADER + head_dim * 4
    while True:
        c, row = atomic_add(ld_i64(o + 120), 1), 0
        while row < n_rows:
            n_units = (_position(st, row) // PAGE + 1) * n_kv
            if c < n_units:
                break
            c -= n_units
            row += 1
        if row == n_rows:
            return
        tile, kv = c // n_kv, c % n_kv
        _prepare(o, row, 1, group, kv, queries)
        out = ld_i64(o + 96) + ((row * ld_i64(o + 104) + tile) * n_heads + kv * group) * part_bytes
        for i in range(0, group, 4):
            _partials(o, st, row, i, min(4, group - i), group, tile, kv, queries, w, out + i * part_bytes)


@inner
def _prepare(o, row, n, group, kv, queries):
    """The queries of one kv head and n rows, made ready for the K type."""
    ld, head_dim = ld_i64(o + 16), ld_i64(o + 40)
    for i in range(n * group):
        q = ld_i64(o + 8) + ((row + i // group) * ld + (kv * group + i % group) * head_dim) * 4
        invoke_row(ld_i64(o + 72), q, head_dim, queries + i * head_dim * 4)


@inner
def _run(o, st, row, n, group, kv, queries, w):
    """n neighbouring rows of one sequence with one kv head, tiles ascending, the state in `parts`."""
    n_heads, head_dim = ld_i64(o + 24), ld_i64(o + 40)
    part_bytes, out = HEADER + head_dim * 4, w + 2 * 4 * TILE
    _prepare(o, row, n, group, kv, queries)
    for tile in range(_position(st, row + n - 1) // PAGE + 1):
        for i in range(0, n * group, 4):
            m = min(4, n * group - i)
            if _position(st, row + (i + m - 1) // group) < tile * PAGE:
                continue
            _partials(o, st, row, i, m, group, tile, kv, queries, w, out)
            for j in range(m):
                r = row + (i + j) // group
                if _position(st, r) >= tile * PAGE:
                    part = out + j * part_bytes
                    state = ld_i64(o + 96) + (r * n_heads + kv * group + (i + j) % group) * part_bytes
                    if tile == 0:
                        _copy(part, state, part_bytes)
                    else:
                        top, total = blend(ld_f32(state), ld_f32(state + 4), state + HEADER, part, head_dim)
                        st_f32(state, top)
                        st_f32(state + 4, total)


@inner
def _rows_together(o, nth, st, n_rows, group, w, queries):
    """Units: (some rows, kv head); neighbours of one sequence share reads."""
    n_kv, tables = ld_i64(o + 32), ld_i64(st + PAGES)
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

    words: 1 rotated and scaled queries: column 0 of qkv f32 [rows][ld]; 2 ld (floats); 3 n_heads; 4 n_kv_heads;
    5 head_dim; 6 layer offset in a page; 7 bytes of one kv head there (K and V); 8 its K bytes; 9 prepare, 10 scores
    (of the K type), 11 mix (of the V type); 12 parts; 13 max_tiles; 14 scratch (scratch_bytes() a thread); 15 counter.
    """
    n_rows, group = ld_i64(st + N_ROWS), ld_i64(o + 24) // ld_i64(o + 32)
    n_queries, part_bytes = ROWS * group * ld_i64(o + 40) * 4, HEADER + ld_i64(o + 40) * 4
    queries = ld_i64(o + 112) + tid * (n_queries + 8 * TILE + 4 * part_bytes)
    if n_rows <= REPLICATE:
        _tiles_apart(o, st, n_rows, group, queries + n_queries, queries)
    else:
        _rows_together(o, nth, st, n_rows, group, queries + n_queries, queries)
