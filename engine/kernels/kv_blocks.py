"""What the quantised types of keys and values share: queries as int8, weights times scales. Not here: layouts.

A query becomes int8 in blocks of 32, d = max|x| / 127 and q = nearest even of x / d: a block's products are exact
integers, and a score is one chain over the blocks. Weights are multiplied by the value scales once per block and mixed
as floats are. A NaN in a key or value makes its scale NaN: nothing is hidden.
"""

from typing import Any

from engine.kernels.jit import inner, kernel
from engine.kernels.kv import TILE
from engine.kernels.simd import (
    F32, I64, _fma, _prefetch, _reduce, call, const, f32x8, i8x8, i32x8, i64, ir, ld_f16x8, ld_f32x8, make, mul_f32x8,
    read, shuffle, splat, st_f32x8, void, write,
)  # fmt: skip
from engine.kernels.vmath import _greater

LEAD = 4096  # about what is read in the time a line takes to come
VECTORS = (4, 4, 4, 2, 2, 2)  # of 8 dims of values, read together by 1, 2 ... queries


def load_block(b: Any, x: Any) -> tuple[list[Any], Any]:
    """IR: 32 floats at x as four vectors, and a scalar that is 0, or NaN where one of them is NaN or infinite."""
    rows = [read(b, b.add(x, ir.Constant(I64, i * 32)), f32x8.ir) for i in range(4)]
    bad = const(f32x8, 0.0)
    for row in rows:
        bad = _fma(b, row, const(f32x8, 0.0), bad)
    return rows, _reduce(b, bad, lambda b, x, y: b.fadd(x, y))


def joined(b: Any, ints: list[Any]) -> Any:
    """IR: the low bytes of four i32x8 as one vector of 32 bytes."""
    low = [b.trunc(i, i8x8.ir) for i in ints]
    pairs = [shuffle(b, low[i], range(16), low[i + 1]) for i in (0, 2)]
    return shuffle(b, pairs[0], range(32), pairs[1])


def eight_bits(b: Any, x: Any) -> tuple[Any, Any, Any]:
    """IR: 32 floats at x -> 32 int8 as i32x8, their scale in f32, their sum."""
    rows, bad = load_block(b, x)
    top = const(f32x8, 0.0)
    for row in rows:
        top = _greater(b, call(b, "llvm.fabs.v8f32", f32x8.ir, [row]), top)
    most = b.fadd(_reduce(b, top, _greater), bad)
    zero, full = ir.Constant(F32, 0.0), ir.Constant(F32, 127.0)
    inverse = splat(b, b.select(b.fcmp_ordered(">", most, zero), b.fdiv(full, most), zero), f32x8)
    near = [call(b, "llvm.nearbyint.v8f32", f32x8.ir, [b.fmul(row, inverse)]) for row in rows]
    ints = [b.fptosi(n, i32x8.ir) for n in near]
    total = _reduce(b, b.add(b.add(ints[0], ints[1]), b.add(ints[2], ints[3])), lambda b, x, y: b.add(x, y))
    return b.bitcast(joined(b, ints), i32x8.ir), b.fdiv(most, full), total


def _quantise_query(b: Any, x: Any, q: Any, d: Any, total: Any) -> None:
    ints, scale, sums = eight_bits(b, x)
    write(b, q, ints)
    write(b, d, scale)
    write(b, total, sums)


_query = make(void, (i64,) * 4, _quantise_query)


@kernel(3)
def prepare(q, head_dim, out):
    """One query as `scores` wants it: int8 [head_dim] | f32 scales [head_dim / 32] | i32 sums [head_dim / 32]."""
    n = head_dim // 32
    for block in range(n):
        _query(q + block * 128, out + block * 32, out + head_dim + block * 4, out + head_dim + (n + block) * 4)


def prefetch_ahead(b: Any, p: Any, n_bytes: int) -> None:
    """IR: ask for as many lines as n_bytes have, LEAD bytes behind p."""
    for i in range(0, n_bytes, 64):
        _prefetch(b, b.add(p, ir.Constant(I64, LEAD + i)))


@inner
def scale_weights(w, n_q, first, n, scales, out):
    """out f32 [n_q][256] = w times f16 scales [256], positions first..n-1."""
    for i in range(n_q):
        for p in range(first, n, 8):
            at = i * TILE + p * 4
            st_f32x8(out + at, mul_f32x8(ld_f32x8(w + at), ld_f16x8(scales + p * 2)))
