"""One step of a row's f32 chain: a sub-block's whole-number total joins the sum so far. Not here: the total.

x is the address of an activation block (kernels/act.py); fused multiply-adds round once, in every walk alike.
"""

from engine.kernels.act import SCALE, SUM
from engine.kernels.jit import inner
from engine.kernels.simd import bc_f32x8, f32, fma_f32x8, i2f, mul_f32x8, sp_f32x8


@inner
def with_min(acc, total, c, x):
    """w = d * q + m, c = (d, m): fma(dx, fma(d, total, m * sum(x)), acc)."""
    return fma_f32x8(bc_f32x8(x + SCALE), fma_f32x8(c[0], i2f(total), mul_f32x8(c[1], bc_f32x8(x + SUM))), acc)


@inner
def around(centre, acc, total, d, x):
    """w = d * (q - centre): fma(d * dx, total - centre * sum(x), acc), whole numbers below 2^24 in the middle."""
    centred = fma_f32x8(sp_f32x8(f32(-centre)), bc_f32x8(x + SUM), i2f(total))
    return fma_f32x8(mul_f32x8(d, bc_f32x8(x + SCALE)), centred, acc)


@inner
def plain(acc, total, d, x):
    """w = d * q: fma(d * dx, total, acc)."""
    return fma_f32x8(mul_f32x8(d, bc_f32x8(x + SCALE)), i2f(total), acc)
