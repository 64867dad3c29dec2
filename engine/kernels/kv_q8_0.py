"""Keys and values as q8_0: int8 with one f16 scale per 32 dims. Not here: which tile and which head (attention.py).

One kv head's part of a page, for head_dim D, B = D / 32 blocks:

    K   32 panels x [B] blocks of 272 bytes:  f16 scales [8 positions] | 8 groups of 4 dims: int8 [8 positions][4]
    V   int8 [256 positions][D] | f16 scales [B][256 positions]

x = d * q, d = max|x| / 127 rounded to f16 after q = nearest even of x / d. A query becomes int8 too, in blocks of 32:
a block's products are exact integers and a score is one chain over the blocks. Weights are multiplied by the value
scales once per block, then mixed as in kv_f16.py. A NaN in a key or value makes its scale NaN: nothing is hidden.
"""

from typing import Any

from engine.kernels.dots import VNNI, _dot_u8, _unsigned
from engine.kernels.half import load_f16, store_f16
from engine.kernels.jit import kernel, op
from engine.kernels.kv_f16 import TILE, mixer, page_of
from engine.kernels.rope import rope
from engine.kernels.simd import (
    F32, I32, I64, _fma, _reduce, call, const, f32x8, i8x8, i8x32, i32x8, i64, ir, ld_f16x8,
    ld_f32x8, ld_i64, make, mul_f32x8, read, shuffle, splat, st_f32x8, void, write,
)  # fmt: skip
from engine.kernels.step import N_ROWS, PAGE, POSITIONS
from engine.kernels.sync import atomic_add
from engine.kernels.vmath import _greater, loop

BLOCK = 272  # bytes of 32 dims of 8 positions


def scorer(n_q: int, n_panels: int) -> Any:
    """IR: scores of n_q prepared queries (q_bytes apart) and n_panels K panels; out[query][position]."""

    def emit(b: Any, k: Any, q: Any, q_bytes: Any, dim: Any, out: Any) -> None:
        c = lambda n: ir.Constant(I64, n)  # noqa: E731
        n_blocks = b.sdiv(dim, c(32))
        panel = b.mul(n_blocks, c(BLOCK))
        ks = [b.add(k, b.mul(panel, c(j))) for j in range(n_panels)]
        qs = [b.add(q, b.mul(q_bytes, c(i))) for i in range(n_q)]
        sums = b.mul(n_blocks, c(4))

        def body(block: Any, acc: Any) -> list[Any]:
            at = [b.add(p, b.mul(block, c(BLOCK))) for p in ks]
            ints = [const(i32x8, 0)] * (n_q * n_panels)
            for g in range(8):
                x = [
                    b.bitcast(splat(b, read(b, b.add(b.add(p, b.mul(block, c(32))), c(g * 4)), I32), i32x8), i8x32.ir)
                    for p in qs
                ]
                for j in range(n_panels):
                    keys = read(b, b.add(at[j], c(16 + g * 32)), i8x32.ir)
                    size = _unsigned(b, keys)
                    for i in range(n_q):
                        ints[j * n_q + i] = _dot_u8(b, ints[j * n_q + i], size, x[i], keys)
            new = []
            for j in range(n_panels):
                scale = load_f16(b, at[j], 8)
                for i in range(n_q):
                    own = b.add(b.add(qs[i], dim), b.mul(block, c(4)))
                    if VNNI:  # keys went in as key + 128
                        bias = b.mul(splat(b, read(b, b.add(own, sums), I32), i32x8), const(i32x8, 128))
                        ints[j * n_q + i] = b.sub(ints[j * n_q + i], bias)
                    both = b.fmul(scale, splat(b, read(b, own, F32), f32x8))
                    new.append(_fma(b, both, b.sitofp(ints[j * n_q + i], f32x8.ir), acc[j * n_q + i]))
            return new

        acc = loop(b, n_blocks, [const(f32x8, 0.0)] * (n_q * n_panels), body)
        for j in range(n_panels):
            for i in range(n_q):
                write(b, b.add(out, c(i * TILE + j * 32)), acc[j * n_q + i])

    return make(void, (i64,) * 5, emit)


def _quantised(b: Any, x: Any) -> tuple[Any, Any, Any]:
    """32 floats at x -> int8 in groups of four, their scale in f32, their sum."""
    rows = [read(b, b.add(x, ir.Constant(I64, i * 32)), f32x8.ir) for i in range(4)]
    top, bad = const(f32x8, 0.0), const(f32x8, 0.0)
    for row in rows:
        top = _greater(b, call(b, "llvm.fabs.v8f32", f32x8.ir, [row]), top)
        bad = _fma(b, row, const(f32x8, 0.0), bad)  # 0, or NaN for a NaN or an infinity
    most = b.fadd(_reduce(b, top, _greater), _reduce(b, bad, lambda b, x, y: b.fadd(x, y)))
    zero, full = ir.Constant(F32, 0.0), ir.Constant(F32, 127.0)
    inverse = splat(b, b.select(b.fcmp_ordered(">", most, zero), b.fdiv(full, most), zero), f32x8)
    near = [call(b, "llvm.nearbyint.v8f32", f32x8.ir, [b.fmul(row, inverse)]) for row in rows]
    ints = [b.fptosi(n, i32x8.ir) for n in near]
    total = _reduce(b, b.add(b.add(ints[0], ints[1]), b.add(ints[2], ints[3])), lambda b, x, y: b.add(x, y))
    low = [b.trunc(i, i8x8.ir) for i in ints]
    pairs = [shuffle(b, low[i], range(16), low[i + 1]) for i in (0, 2)]
    return b.bitcast(shuffle(b, pairs[0], range(32), pairs[1]), i32x8.ir), b.fdiv(most, full), total


def _quantise_key(b: Any, x: Any, q: Any, d: Any) -> None:
    """32 dims of one position into a panel."""
    groups, scale, _ = _quantised(b, x)
    for i in range(8):
        write(b, b.add(q, ir.Constant(I64, i * 32)), b.extract_element(groups, ir.Constant(I32, i)))
    store_f16(b, d, scale)


def _quantise_value(b: Any, x: Any, q: Any, d: Any) -> None:
    groups, scale, _ = _quantised(b, x)
    write(b, q, groups)
    store_f16(b, d, scale)


def _quantise_query(b: Any, x: Any, q: Any, d: Any, total: Any) -> None:
    groups, scale, sums = _quantised(b, x)
    write(b, q, groups)
    write(b, d, scale)
    write(b, total, sums)


_key, _value = make(void, (i64,) * 3, _quantise_key), make(void, (i64,) * 3, _quantise_value)
_query = make(void, (i64,) * 4, _quantise_query)
_score1, _score2, _score3, _score4 = scorer(1, 4), scorer(2, 4), scorer(3, 2), scorer(4, 2)
_bytes = lambda b, p: b.sitofp(b.sext(read(b, p, i8x8.ir), i32x8.ir), f32x8.ir)  # noqa: E731
_mix1, _mix2, _mix3, _mix4 = (
    mixer(1, 4, 1, _bytes),
    mixer(2, 4, 1, _bytes),
    mixer(3, 4, 1, _bytes),
    mixer(4, 2, 1, _bytes),
)


@kernel(3)
def prepare_q8_0(q, head_dim, out):
    """One query as `scores_q8_0` wants it: int8 [head_dim] | f32 scales [head_dim / 32] | i32 sums [head_dim / 32]."""
    n = head_dim // 32
    for block in range(n):
        _query(q + block * 128, out + block * 32, out + head_dim + block * 4, out + head_dim + (n + block) * 4)


@kernel(7)
def scores_q8_0(k, q, q_bytes, n_q, n, head_dim, out):
    """out f32 [n_q][256]: products of n_q <= 4 prepared queries with positions 0..n-1; up to 31 more are written."""
    panel = head_dim // 32 * BLOCK
    if n_q == 4:
        for p in range(0, n, 16):
            _score4(k + p // 8 * panel, q, q_bytes, head_dim, out + p * 4)
    elif n_q == 3:
        for p in range(0, n, 16):
            _score3(k + p // 8 * panel, q, q_bytes, head_dim, out + p * 4)
    elif n_q == 2:
        for p in range(0, n, 32):
            _score2(k + p // 8 * panel, q, q_bytes, head_dim, out + p * 4)
    else:
        for p in range(0, n, 32):
            _score1(k + p // 8 * panel, q, q_bytes, head_dim, out + p * 4)


@kernel(7)
def mix_q8_0(v, w, n_q, n, head_dim, out, out_bytes):
    """out f32 [n_q] rows out_bytes apart: sums over positions 0..n-1 of w f32 [n_q][256] times V. Overwrites what lies
    behind w: f32 [4][256] at w + 4096."""
    scaled = w + 4 * TILE
    for block in range(head_dim // 32):
        scales = v + PAGE * head_dim + block * PAGE * 2
        for i in range(n_q):
            for p in range(0, n, 8):
                at = i * TILE + p * 4
                st_f32x8(scaled + at, mul_f32x8(ld_f32x8(w + at), ld_f16x8(scales + p * 2)))
        values, sums = v + block * 32, out + block * 128
        if n_q == 4:
            _mix4(values, head_dim, scaled, n, sums, out_bytes)
            _mix4(values + 16, head_dim, scaled, n, sums + 64, out_bytes)
        elif n_q == 3:
            _mix3(values, head_dim, scaled, n, sums, out_bytes)
        elif n_q == 2:
            _mix2(values, head_dim, scaled, n, sums, out_bytes)
        else:
            _mix1(values, head_dim, scaled, n, sums, out_bytes)


@op
def store_k_q8_0(o, tid, nth, st):
    """Rotate keys (in place) and store them. Words as store_k_f16's; head_dim is a multiple of 32."""
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
        out = page_of(st, row, position // PAGE) + layer + h * head_bytes + r // 8 * (head_dim // 32 * BLOCK)
        for block in range(head_dim // 32):
            _key(x + block * 128, out + block * BLOCK + 16 + r % 8 * 4, out + block * BLOCK + r % 8 * 2)


@op
def store_v_q8_0(o, tid, nth, st):
    """Store values. Words as store_v_f16's; head_dim is a multiple of 32."""
    values, ld, n_heads, head_dim = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32)
    offset, head_bytes = ld_i64(o + 40), ld_i64(o + 48)
    counter, n_units = ld_i64(o + 120), ld_i64(st + N_ROWS) * n_heads
    while True:
        c = atomic_add(counter, 1)
        if c >= n_units:
            return
        row, h = c // n_heads, c % n_heads
        position = ld_i64(ld_i64(st + POSITIONS) + row * 8)
        r = position % PAGE
        out = page_of(st, row, position // PAGE) + offset + h * head_bytes
        x = values + (row * ld + h * head_dim) * 4
        for block in range(head_dim // 32):
            scale = out + PAGE * head_dim + (block * PAGE + r) * 2
            _value(x + block * 128, out + r * head_dim + block * 32, scale)
