"""Scores of float keys, shared by f32, f16 and bf16. Not here: their layouts and loads (kv_f32.py ...).

Lane = position, one chain over the dims per position, so a query's numbers do not depend on how many share the loads.
Panels per step are a trade: eight chains hide the latency of a multiply-add, sixteen registers hold them and what they
read.
"""

from collections.abc import Callable, Sequence
from typing import Any

from engine.kernels.jit import kernel
from engine.kernels.kv import TILE, at, for_each_width, groups
from engine.kernels.simd import (
    F32, I64, _fma, _prefetch, const, f32x8, i64, ir, ld_f32x8, make, read, splat, st_f32x8, void, write,
)  # fmt: skip
from engine.kernels.vmath import loop

PANELS = (8, 4, 4, 2, 2, 2)  # read together by 1, 2 ... queries
VECTORS = (8, 4, 4, 2, 2, 2)  # of values, likewise


def scorer(item_bytes: int, load: Callable[[Any, Any], Any]) -> Any:
    """IR of `scores` for K panels of [head_dim][8 positions] items, loaded by load(b, address) as eight floats."""

    def emit(b: Any, k: Any, q: Any, q_bytes: Any, n_q: Any, first: Any, n: Any, dim: Any, out: Any) -> None:
        panel = b.mul(dim, ir.Constant(I64, 8 * item_bytes))
        start = b.add(k, b.mul(b.sdiv(first, ir.Constant(I64, 8)), panel))
        count, to = b.sub(n, first), at(b, out, first, 4)

        def some(c: int) -> None:
            size = PANELS[c - 1]
            qs = [b.add(q, b.mul(q_bytes, ir.Constant(I64, i))) for i in range(c)]

            def group(g: Any, _: Sequence[Any]) -> list[Any]:
                base = b.add(start, b.mul(b.mul(g, ir.Constant(I64, size)), panel))
                ks = [b.add(base, b.mul(panel, ir.Constant(I64, j))) for j in range(size)]

                def body(d: Any, acc: Sequence[Any]) -> list[Any]:
                    # panels are as many short streams, which no hardware follows: 5.4 GB/s from DRAM, 17.4 with this
                    _prefetch(b, b.add(at(b, base, d, 8 * item_bytes * size), b.mul(panel, ir.Constant(I64, size))))
                    keys = [load(b, at(b, p, d, 8 * item_bytes)) for p in ks]
                    new = list(acc)
                    for i in range(c):
                        x = splat(b, read(b, at(b, qs[i], d, 4), F32), f32x8)
                        for j in range(size):
                            new[j * c + i] = _fma(b, keys[j], x, acc[j * c + i])
                    return new

                acc = loop(b, dim, [const(f32x8, 0.0)] * (c * size), body)
                for j in range(size):
                    for i in range(c):
                        write(b, b.add(at(b, to, g, size * 32), ir.Constant(I64, i * TILE + j * 32)), acc[j * c + i])
                return []

            loop(b, groups(b, count, 8 * size), [], group)

        for_each_width(b, n_q, some)

    return make(void, (i64,) * 8, emit)


@kernel(3)
def prepare(q, head_dim, out):
    """One query as `scores` wants it: the floats themselves."""
    for i in range(0, head_dim * 4, 32):
        st_f32x8(out + i, ld_f32x8(q + i))
