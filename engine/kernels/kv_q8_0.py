"""Keys and values as q8_0: int8 with one f16 scale per 32 dims. Not here: queries and scaled weights (kv_blocks.py).

One kv head's part of a page, for head_dim D, B = D / 32 blocks:

    K   32 panels x [B] blocks of 272 bytes:  f16 scales [8 positions] | 8 groups of 4 dims: int8 [8 positions][4]
    V   f16 scales [B][256 positions] | D / 16 slices x int8 [256 positions][16]

x = d * q, d = max|x| / 127 rounded to f16 after q = nearest even of x / d.
"""

from collections.abc import Sequence
from typing import Any

from engine.kernels.dots import BIASED, _dot_u8, _unsigned
from engine.kernels.half import load_f16, store_f16
from engine.kernels.jit import kernel
from engine.kernels.kv import TILE, WIDTH, at, for_each_width, groups, mixer
from engine.kernels.kv_blocks import VECTORS, eight_bits, prefetch_ahead, prepare, scale_weights
from engine.kernels.simd import (
    F32, I32, I64, _fma, const, f32x8, i8x8, i8x32, i32x8, i64, ir, make, read, shuffle, splat, void, write,
)  # fmt: skip
from engine.kernels.step import PAGE
from engine.kernels.vmath import loop

__all__ = ["mix", "prepare", "put_k", "put_v", "scores"]

BLOCK = 272  # bytes of 32 dims of 8 positions
PANELS = (4, 4, 2, 2, 2, 2)


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
                here = [at(b, p, block, BLOCK) for p in ks]
                prefetch_ahead(b, at(b, base, block, BLOCK * size), BLOCK * size)
                ints = [const(i32x8, 0)] * (c * size)
                for four in range(8):
                    keys = [read(b, b.add(p, c64(16 + four * 32)), i8x32.ir) for p in here]
                    plus = [_unsigned(b, key) for key in keys]
                    for i in range(c):
                        x = read(b, b.add(at(b, qs[i], block, 32), c64(four * 4)), I32)
                        x = b.bitcast(splat(b, x, i32x8), i8x32.ir)
                        for j in range(size):
                            ints[j * c + i] = _dot_u8(b, ints[j * c + i], plus[j], x, keys[j])
                new = list(acc)
                for j in range(size):
                    scale = load_f16(b, here[j], 8)
                    for i in range(c):
                        own, total = at(b, b.add(qs[i], dim), block, 4), ints[j * c + i]
                        if BIASED:  # keys went in as key + 128
                            bias = b.mul(splat(b, read(b, b.add(own, sums), I32), i32x8), const(i32x8, 128))
                            total = b.sub(total, bias)
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


def _emit_key(b: Any, x: Any, q: Any, d: Any) -> None:
    """32 dims of one position into a panel."""
    ints, scale, _ = eight_bits(b, x)
    for i in range(8):
        write(b, b.add(q, ir.Constant(I64, i * 32)), b.extract_element(ints, ir.Constant(I32, i)))
    store_f16(b, d, scale)


def _emit_value(b: Any, x: Any, q: Any, d: Any) -> None:
    ints, scale, _ = eight_bits(b, x)
    write(b, q, shuffle(b, ints, range(4)))
    write(b, b.add(q, ir.Constant(I64, 16 * PAGE)), shuffle(b, ints, range(4, 8)))
    store_f16(b, d, scale)


def _floats(b: Any, p: Any, n: int) -> list[Any]:
    at_j = [b.add(p, ir.Constant(I64, j * 8)) for j in range(n)]
    return [b.sitofp(b.sext(read(b, a, i8x8.ir), i32x8.ir), f32x8.ir) for a in at_j]


_scores = make(void, (i64,) * 8, _emit_scores)
_key, _value = make(void, (i64,) * 3, _emit_key), make(void, (i64,) * 3, _emit_value)
_mix = mixer(8, VECTORS, _floats)


@kernel(8)
def scores(k, q, q_bytes, n_q, first, n, head_dim, out):
    _scores(k, q, q_bytes, n_q, first, n, head_dim, out)


@kernel(8)
def mix(v, w, n_q, first, n, head_dim, out, out_bytes):
    scaled, n_blocks = w + WIDTH * TILE, head_dim // 32
    values = v + n_blocks * PAGE * 2
    for block in range(n_blocks):
        scale_weights(w, n_q, first, n, v + block * PAGE * 2, scaled)
        ahead = 32 * PAGE if block + 1 < n_blocks else 0
        _mix(values + block * 32 * PAGE, 4, scaled, n_q, first, n, out + block * 128, out_bytes, ahead)


@kernel(4)
def put_k(x, head_dim, r, k):
    out = k + r // 8 * (head_dim // 32 * BLOCK)
    for block in range(head_dim // 32):
        _key(x + block * 128, out + block * BLOCK + 16 + r % 8 * 4, out + block * BLOCK + r % 8 * 2)


@kernel(4)
def put_v(x, head_dim, r, v):
    values = v + head_dim // 32 * PAGE * 2 + r * 16
    for block in range(head_dim // 32):
        _value(x + block * 128, values + block * 32 * PAGE, v + (block * PAGE + r) * 2)
