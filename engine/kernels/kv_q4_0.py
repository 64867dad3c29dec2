"""Keys and values as q4_0: four bits with one f16 scale per 32 dims. Not here: queries, scaled weights (kv_blocks.py).

One kv head's part of a page, for head_dim D, B = D / 32 blocks:

    K   32 panels x [B] blocks of 144 bytes:  f16 scales [8 positions] | 4 groups g of [8 positions][4 bytes]:
        byte c holds dim 4g + c in its low nibble, dim 16 + 4g + c in its high one
    V   f16 scales [B][256 positions] | D / 16 slices x [256 positions][8 bytes]
        byte j holds dim j in its low nibble, dim 8 + j in its high one

x = d * (q - 8) with q in 0..15: d = m / -8, m the value of greatest magnitude (the negative one of two), rounded to
f16 after q = floor(x / d + 8.5), at most 15.
"""

from collections.abc import Sequence
from typing import Any

from engine.kernels.dots import _dot_u4
from engine.kernels.half import load_f16, store_f16
from engine.kernels.jit import kernel
from engine.kernels.kv import TILE, WIDTH, at, for_each_width, groups, mixer
from engine.kernels.kv_blocks import VECTORS, joined, load_block, prefetch_ahead, prepare, scale_weights
from engine.kernels.simd import (
    F32, I32, I64, _fma, _reduce, const, f32x8, i8x8, i8x16, i8x32, i32x8, i64, ir, make, read, shuffle,
    splat, void, write,
)  # fmt: skip
from engine.kernels.step import PAGE
from engine.kernels.vmath import _greater, loop

__all__ = ["mix", "prepare", "put_k", "put_v", "scores"]

BLOCK = 144  # bytes of 32 dims of 8 positions
PANELS = (4, 2, 2, 1, 1, 1)


def _emit_scores(b: Any, k: Any, q: Any, q_bytes: Any, n_q: Any, first: Any, n: Any, dim: Any, out: Any) -> None:
    c64 = lambda x: ir.Constant(I64, x)  # noqa: E731
    n_blocks = b.sdiv(dim, c64(32))
    panel, sums = b.mul(n_blocks, c64(BLOCK)), b.mul(n_blocks, c64(4))
    start = b.add(k, b.mul(b.sdiv(first, c64(8)), panel))
    count, to = b.sub(n, first), at(b, out, first, 4)

    def some(c: int) -> None:
        size = PANELS[c - 1]
        qs = [b.add(q, b.mul(q_bytes, c64(i))) for i in range(c)]

        def group(g: Any, _: Sequence[Any]) -> list[Any]:
            base = b.add(start, b.mul(b.mul(g, c64(size)), panel))
            ks = [b.add(base, b.mul(panel, c64(j))) for j in range(size)]

            def body(block: Any, acc: Sequence[Any]) -> list[Any]:
                new = list(acc)
                prefetch_ahead(b, at(b, base, block, BLOCK * size), BLOCK * size)
                for j in range(size):
                    here = at(b, ks[j], block, BLOCK)
                    bytes_ = [read(b, b.add(here, c64(16 + g * 32)), i8x32.ir) for g in range(4)]
                    keys = [b.and_(v, const(i8x32, 15)) for v in bytes_]
                    keys += [b.lshr(v, const(i8x32, 4)) for v in bytes_]
                    scale = load_f16(b, here, 8)
                    for i in range(c):
                        x = at(b, qs[i], block, 32)
                        xs = [
                            b.bitcast(splat(b, read(b, b.add(x, c64(four * 4)), I32), i32x8), i8x32.ir)
                            for four in range(8)
                        ]
                        own = at(b, b.add(qs[i], dim), block, 4)
                        bias = b.mul(read(b, b.add(own, sums), I32), ir.Constant(I32, 8))
                        total = b.sub(_dot_u4(b, const(i32x8, 0), keys, xs), splat(b, bias, i32x8))
                        both = b.fmul(scale, splat(b, read(b, own, F32), f32x8))
                        new[j * c + i] = _fma(b, both, b.sitofp(total, f32x8.ir), acc[j * c + i])
                return new

            acc = loop(b, n_blocks, [const(f32x8, 0.0)] * (c * size), body)
            for j in range(size):
                for i in range(c):
                    write(b, b.add(at(b, to, g, size * 32), c64(i * TILE + j * 32)), acc[j * c + i])
            return []

        loop(b, groups(b, count, 8 * size), [], group)

    for_each_width(b, n_q, some)


def _four_bits(b: Any, x: Any, low: Sequence[int], high: Sequence[int]) -> tuple[Any, Any]:
    """IR: 32 floats at x -> 16 bytes with dims `low` and `high` in their nibbles, the scale in f32."""
    rows, bad = load_block(b, x)
    smaller = lambda b, x, y: b.select(b.fcmp_ordered("<", x, y), x, y)  # noqa: E731
    top = least = const(f32x8, 0.0)
    for row in rows:
        top, least = _greater(b, row, top), smaller(b, row, least)
    top, least = _reduce(b, top, _greater), _reduce(b, least, smaller)
    most = b.select(b.fcmp_ordered(">=", b.fsub(ir.Constant(F32, -0.0), least), top), least, top)
    scale, zero = b.fadd(b.fmul(most, ir.Constant(F32, -0.125)), bad), ir.Constant(F32, 0.0)
    inverse = b.select(b.fcmp_ordered("!=", scale, zero), b.fdiv(ir.Constant(F32, 1.0), scale), zero)
    inverse = splat(b, inverse, f32x8)
    ints = []
    for row in rows:
        q = b.fptosi(b.fadd(b.fmul(row, inverse), const(f32x8, 8.5)), i32x8.ir)
        q = b.select(b.icmp_signed("<", q, const(i32x8, 15)), q, const(i32x8, 15))
        ints.append(b.and_(q, const(i32x8, 15)))
    q = joined(b, ints)
    return b.or_(shuffle(b, q, low), b.shl(shuffle(b, q, high), const(i8x16, 4))), scale


def _emit_key(b: Any, x: Any, q: Any, d: Any) -> None:
    """32 dims of one position into a panel."""
    packed, scale = _four_bits(b, x, range(16), range(16, 32))
    fours = b.bitcast(packed, ir.VectorType(I32, 4))
    for i in range(4):
        write(b, b.add(q, ir.Constant(I64, i * 32)), b.extract_element(fours, ir.Constant(I32, i)))
    store_f16(b, d, scale)


def _emit_value(b: Any, x: Any, q: Any, d: Any) -> None:
    packed, scale = _four_bits(b, x, [*range(8), *range(16, 24)], [*range(8, 16), *range(24, 32)])
    write(b, q, shuffle(b, packed, range(8)))
    write(b, b.add(q, ir.Constant(I64, 8 * PAGE)), shuffle(b, packed, range(8, 16)))
    store_f16(b, d, scale)


def _floats(b: Any, p: Any, _n: int) -> list[Any]:
    both = b.zext(read(b, p, i8x8.ir), i32x8.ir)
    halves = b.and_(both, const(i32x8, 15)), b.lshr(both, const(i32x8, 4))
    return [b.sitofp(b.sub(v, const(i32x8, 8)), f32x8.ir) for v in halves]


_scores = make(void, (i64,) * 8, _emit_scores)
_key, _value = make(void, (i64,) * 3, _emit_key), make(void, (i64,) * 3, _emit_value)
_mix = mixer(4, VECTORS, _floats)


@kernel(8)
def scores(k, q, q_bytes, n_q, first, n, head_dim, out):
    _scores(k, q, q_bytes, n_q, first, n, head_dim, out)


@kernel(8)
def mix(v, w, n_q, first, n, head_dim, out, out_bytes):
    scaled, n_blocks = w + WIDTH * TILE, head_dim // 32
    values = v + n_blocks * PAGE * 2
    for block in range(n_blocks):
        scale_weights(w, n_q, first, n, v + block * PAGE * 2, scaled)
        ahead = 16 * PAGE if block + 1 < n_blocks else 0
        _mix(values + block * 16 * PAGE, 4, scaled, n_q, first, n, out + block * 128, out_bytes, ahead)


@kernel(4)
def put_k(x, head_dim, r, k):
    out = k + r // 8 * (head_dim // 32 * BLOCK)
    for block in range(head_dim // 32):
        _key(x + block * 128, out + block * BLOCK + 16 + r % 8 * 4, out + block * BLOCK + r % 8 * 2)


@kernel(4)
def put_v(x, head_dim, r, v):
    values = v + head_dim // 32 * PAGE * 2 + r * 8
    for block in range(head_dim // 32):
        _value(x + block * 128, values + block * 16 * PAGE, v + (block * PAGE + r) * 2)
