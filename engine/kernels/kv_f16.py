"""Keys and values as f16: how they are stored, scored and mixed. Not here: which tile and which head (attention.py).

One kv head's part of a page, for head_dim D:

    K   32 panels x [D][8 positions] f16      position p, dim d at (p / 8 * D + d) * 16 + p % 8 * 2
    V   [256 positions][D] f16                position p, dim d at (p * D + d) * 2

Scores: lane = position, one chain over the dims per position. Mix: lane = dim, one chain over the positions per dim.
So a query's numbers do not depend on how many queries share the loads. Queries per call are a trade: eight chains hide
the latency of a multiply-add, sixteen registers hold them and what they read.
"""

from typing import Any

from engine.kernels.half import F16C, load_f16, narrow
from engine.kernels.jit import inner, kernel, op
from engine.kernels.rope import rope
from engine.kernels.simd import (
    F32, I16, I64, _fma, const, f32x8, i64, ir, ld_f32x8, ld_i64, make, read, splat, st_f16x8, st_f32x8, void, write,
)  # fmt: skip
from engine.kernels.step import N_ROWS, PAGE, PAGES, POSITIONS
from engine.kernels.sync import atomic_add
from engine.kernels.vmath import loop

TILE = PAGE * 4  # bytes of one query's scores


def _at(b: Any, p: Any, i: Any, step: int) -> Any:
    return b.add(p, b.mul(i, ir.Constant(I64, step)))


def scorer(n_q: int, n_panels: int) -> Any:
    """IR: scores of n_q queries (f32, q_bytes apart) and n_panels K panels; out[query][position]."""

    def emit(b: Any, k: Any, q: Any, q_bytes: Any, dim: Any, out: Any) -> None:
        panel = b.mul(dim, ir.Constant(I64, 16))
        ks = [b.add(k, b.mul(panel, ir.Constant(I64, j))) for j in range(n_panels)]
        qs = [b.add(q, b.mul(q_bytes, ir.Constant(I64, j))) for j in range(n_q)]

        def body(d: Any, acc: Any) -> list[Any]:
            x = [splat(b, read(b, _at(b, p, d, 4), F32), f32x8) for p in qs]
            new = []
            for j in range(n_panels):
                keys = load_f16(b, _at(b, ks[j], d, 16), 8)
                new += [_fma(b, keys, x[i], acc[j * n_q + i]) for i in range(n_q)]
            return new

        acc = loop(b, dim, [const(f32x8, 0.0)] * (n_q * n_panels), body)
        for j in range(n_panels):
            for i in range(n_q):
                write(b, b.add(out, ir.Constant(I64, i * TILE + j * 32)), acc[j * n_q + i])

    return make(void, (i64,) * 5, emit)


def mixer(n_q: int, n_vecs: int, item_bytes: int, load: Any) -> Any:
    """IR: 8 * n_vecs dims of the weighted sums of n_q queries over n positions; w[query][position]."""

    def emit(b: Any, v: Any, dim: Any, w: Any, n: Any, out: Any, out_bytes: Any) -> None:
        step = b.mul(dim, ir.Constant(I64, item_bytes))
        ws = [b.add(w, ir.Constant(I64, i * TILE)) for i in range(n_q)]

        def body(p: Any, acc: Any) -> list[Any]:
            row = b.add(v, b.mul(p, step))
            weights = [splat(b, read(b, _at(b, q, p, 4), F32), f32x8) for q in ws]
            new = []
            for j in range(n_vecs):
                x = load(b, b.add(row, ir.Constant(I64, j * 8 * item_bytes)))
                new += [_fma(b, weights[i], x, acc[j * n_q + i]) for i in range(n_q)]
            return new

        acc = loop(b, n, [const(f32x8, 0.0)] * (n_q * n_vecs), body)
        for i in range(n_q):
            first = b.add(out, b.mul(out_bytes, ir.Constant(I64, i)))
            for j in range(n_vecs):
                write(b, b.add(first, ir.Constant(I64, j * 32)), acc[j * n_q + i])

    return make(void, (i64,) * 6, emit)


def _spread(b: Any, p: Any, x: Any) -> None:
    """Eight floats as f16, sixteen bytes apart: eight dims of one position in a panel."""
    half = b.bitcast(b.fptrunc(x, ir.VectorType(ir.HalfType(), 8)), ir.VectorType(I16, 8)) if F16C else narrow(b, x)
    for i in range(8):
        write(b, b.add(p, ir.Constant(I64, i * 16)), b.extract_element(half, ir.Constant(ir.IntType(32), i)))


@inner
def page_of(st, row, tile):
    """Address of page `tile` of a row's sequence."""
    return ld_i64(ld_i64(ld_i64(st + PAGES) + row * 8) + tile * 8)


_spread_f16x8 = make(void, (i64, f32x8), _spread)
_score1, _score2, _score3, _score4 = scorer(1, 8), scorer(2, 4), scorer(3, 4), scorer(4, 2)
_half = lambda b, p: load_f16(b, p, 8)  # noqa: E731
_mix1, _mix2, _mix3, _mix4 = mixer(1, 8, 2, _half), mixer(2, 4, 2, _half), mixer(3, 4, 2, _half), mixer(4, 2, 2, _half)
_end1, _end2, _end3, _end4 = (mixer(n, 1, 2, _half) for n in (1, 2, 3, 4))


@kernel(3)
def prepare_f16(q, head_dim, out):
    """One query as `scores_f16` wants it: the floats themselves."""
    for i in range(0, head_dim * 4, 32):
        st_f32x8(out + i, ld_f32x8(q + i))


@kernel(7)
def scores_f16(k, q, q_bytes, n_q, n, head_dim, out):
    """out f32 [n_q][256]: products of n_q <= 4 prepared queries with positions 0..n-1; up to 63 more are written."""
    panel = head_dim * 16
    if n_q == 4:
        for p in range(0, n, 16):
            _score4(k + p // 8 * panel, q, q_bytes, head_dim, out + p * 4)
    elif n_q == 3:
        for p in range(0, n, 32):
            _score3(k + p // 8 * panel, q, q_bytes, head_dim, out + p * 4)
    elif n_q == 2:
        for p in range(0, n, 32):
            _score2(k + p // 8 * panel, q, q_bytes, head_dim, out + p * 4)
    else:
        for p in range(0, n, 64):
            _score1(k + p // 8 * panel, q, q_bytes, head_dim, out + p * 4)


@kernel(7)
def mix_f16(v, w, n_q, n, head_dim, out, out_bytes):
    """out f32 [n_q] rows out_bytes apart: sums over positions 0..n-1 of w f32 [n_q][256] times V."""
    d = 0
    if n_q == 4:
        while d + 16 <= head_dim:
            _mix4(v + d * 2, head_dim, w, n, out + d * 4, out_bytes)
            d += 16
        if d < head_dim:
            _end4(v + d * 2, head_dim, w, n, out + d * 4, out_bytes)
    elif n_q == 3:
        while d + 32 <= head_dim:
            _mix3(v + d * 2, head_dim, w, n, out + d * 4, out_bytes)
            d += 32
        while d < head_dim:
            _end3(v + d * 2, head_dim, w, n, out + d * 4, out_bytes)
            d += 8
    elif n_q == 2:
        while d + 32 <= head_dim:
            _mix2(v + d * 2, head_dim, w, n, out + d * 4, out_bytes)
            d += 32
        while d < head_dim:
            _end2(v + d * 2, head_dim, w, n, out + d * 4, out_bytes)
            d += 8
    else:
        while d + 64 <= head_dim:
            _mix1(v + d * 2, head_dim, w, n, out + d * 4, out_bytes)
            d += 64
        while d < head_dim:
            _end1(v + d * 2, head_dim, w, n, out + d * 4, out_bytes)
            d += 8


@op
def store_k_f16(o, tid, nth, st):
    """Rotate keys (in place) and store them.

    words: 1 first key column of qkv f32 [rows][ld]; 2 ld (floats); 3 n_kv_heads; 4 head_dim; 5 rope_dim; 6 table;
    7 neox; 8 layer offset in a page; 9 bytes of one kv head there (K and V); 15 counter.
    """
    keys, ld, n_heads, head_dim = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32)
    rope_dim, table, neox = ld_i64(o + 40), ld_i64(o + 48), ld_i64(o + 56)
    layer, head_bytes = ld_i64(o + 64), ld_i64(o + 72)
    counter, n_units = ld_i64(o + 120), ld_i64(st + N_ROWS) * n_heads
    while True:
        c = atomic_add(counter, 1)
        if c >= n_units:
            return
        row, h = c // n_heads, c % n_heads
        position = ld_i64(ld_i64(st + POSITIONS) + row * 8)
        x = keys + (row * ld + h * head_dim) * 4
        rope(x, table + position * rope_dim * 4, rope_dim, neox)
        r = position % PAGE
        out = page_of(st, row, position // PAGE) + layer + h * head_bytes + r // 8 * head_dim * 16 + r % 8 * 2
        for d in range(0, head_dim, 8):
            _spread_f16x8(out + d * 16, ld_f32x8(x + d * 4))


@op
def store_v_f16(o, tid, nth, st):
    """Store values.

    words: 1 first value column of qkv f32 [rows][ld]; 2 ld (floats); 3 n_kv_heads; 4 head_dim; 5 layer offset in a
    page + the K bytes of a head; 6 bytes of one kv head there (K and V); 15 counter.
    """
    values, ld, n_heads, head_dim = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32)
    offset, head_bytes = ld_i64(o + 40), ld_i64(o + 48)
    counter, n_units = ld_i64(o + 120), ld_i64(st + N_ROWS) * n_heads
    while True:
        c = atomic_add(counter, 1)
        if c >= n_units:
            return
        row, h = c // n_heads, c % n_heads
        position = ld_i64(ld_i64(st + POSITIONS) + row * 8)
        out = page_of(st, row, position // PAGE) + offset + h * head_bytes + position % PAGE * head_dim * 2
        x = values + (row * ld + h * head_dim) * 4
        for d in range(0, head_dim, 8):
            st_f16x8(out + d * 2, ld_f32x8(x + d * 4))
