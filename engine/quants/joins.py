"""One step of a row's f32 chain: a sub-block's whole-number total joins the sum so far. Not here: the total.

x is the address of an activation block (kernels/act.py); fused multiply-adds round once, in every walk alike.
"""

from engine.kernels.act import LESS_FLOAT, SCALE
from engine.kernels.jit import inner
from engine.kernels.simd import sub_f32x8, z_f32x8
from engine.kernels.wide import bc_f32, fma_f32, mul_f32, to_f32


@inner
def with_min(acc, total, c, x):
    """w = d * q + m, c = (d, -m): fma(dx, fma(d, total, -m * -sum(x)), acc)."""
    least = mul_f32(c[1], bc_f32(acc, x + LESS_FLOAT))
    return fma_f32(bc_f32(acc, x + SCALE), fma_f32(c[0], to_f32(total), least), acc)


@inner
def plain(acc, total, c, x):
    """w = d * q, c = (d, ...): fma(d * dx, total, acc)."""
    return fma_f32(mul_f32(c[0], bc_f32(acc, x + SCALE)), to_f32(total), acc)


@inner
def negative(v):
    return sub_f32x8(z_f32x8(), v)
