"""exp on eight lanes, comparisons that keep NaN, and a counted loop whose state stays in registers. Not here: memory.

The clamps are compare-and-select: one instruction each, where llvm.maxnum costs three and would hide a NaN.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.kernels.jit import inner
from engine.kernels.simd import (
    I64, add_f32x8, const, exp2i, f2i, f32, f32x8, fma_f32x8, i32, i32x8, ir, make, mul_f32x8, round_f32x8, sp_f32x8,
)  # fmt: skip

_F = np.float32
LOWEST = _F(-87.0)  # below it exp8 gives exactly 0: e^-87 is the last before the subnormals


def _greater(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.fcmp_ordered(">", x, y), x, y)


greater = make(f32x8, (f32x8, f32x8), _greater)  # the greater lane; y where either is NaN
smaller = make(f32x8, (f32x8, f32x8), lambda b, x, y: b.select(b.fcmp_ordered("<", x, y), x, y))
zero_under = make(  # y, or exactly 0 where x < limit (a NaN in x keeps y)
    f32x8, (f32x8, f32x8, f32x8),
    lambda b, x, limit, y: b.select(b.fcmp_ordered("<", x, limit), const(f32x8, 0.0), y),
)  # fmt: skip
lane0 = make(f32, (f32x8,), lambda b, v: b.extract_element(v, ir.Constant(ir.IntType(32), 0)))
head_only = make(  # lanes below n keep x, the others take y
    f32x8, (i32, f32x8, f32x8),
    lambda b, n, x, y: b.select(
        b.icmp_signed("<", ir.Constant(i32x8.ir, list(range(8))), _splat_i32(b, n)), x, y
    ),
)  # fmt: skip


def _splat_i32(b: Any, n: Any) -> Any:
    one = b.insert_element(ir.Constant(i32x8.ir, ir.Undefined), n, ir.Constant(ir.IntType(32), 0))
    return b.shuffle_vector(one, one, ir.Constant(i32x8.ir, [0] * 8))


@inner
def exp8(x):
    """e^x per lane within 2 units in the last place; exactly 0 below -87, at most e^88, 1 at 0; NaN stays NaN."""
    held = greater(sp_f32x8(LOWEST), smaller(sp_f32x8(_F(88.0)), x))
    n = round_f32x8(mul_f32x8(held, sp_f32x8(_F(1.44269504))))
    # x - n ln 2, ln 2 in two parts so that the first product is exact
    r = fma_f32x8(n, sp_f32x8(_F(-0.693359375)), held)
    r = fma_f32x8(n, sp_f32x8(_F(2.12194440e-4)), r)
    p = sp_f32x8(_F(1.9875691500e-4))
    p = fma_f32x8(p, r, sp_f32x8(_F(1.3981999507e-3)))
    p = fma_f32x8(p, r, sp_f32x8(_F(8.3334519073e-3)))
    p = fma_f32x8(p, r, sp_f32x8(_F(4.1665795894e-2)))
    p = fma_f32x8(p, r, sp_f32x8(_F(1.6666665459e-1)))
    p = fma_f32x8(p, r, sp_f32x8(_F(5.0000001201e-1)))
    p = add_f32x8(fma_f32x8(mul_f32x8(p, r), r, r), sp_f32x8(_F(1.0)))
    return zero_under(x, sp_f32x8(LOWEST), mul_f32x8(p, exp2i(f2i(n))))


def loop(b: Any, n: Any, state: Sequence[Any], body: Callable[[Any, Sequence[Any]], Sequence[Any]]) -> list[Any]:
    """IR of `for i in range(n): state = body(i, state)`; every value of `state` lives in a register throughout."""
    zero, one = ir.Constant(I64, 0), ir.Constant(I64, 1)
    before, top, done = b.block, b.append_basic_block("loop"), b.append_basic_block("done")
    b.cbranch(b.icmp_signed(">", n, zero), top, done)
    b.position_at_end(top)
    i, held = b.phi(I64), [b.phi(s.type) for s in state]
    after = body(i, held)
    following, last = b.add(i, one), b.block
    b.cbranch(b.icmp_signed("<", following, n), top, done)
    for phi, first, then in zip([i, *held], [zero, *state], [following, *after], strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(then, last)
    b.position_at_end(done)
    out = [b.phi(s.type) for s in state]
    for phi, first, then in zip(out, state, after, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(then, last)
    return out
