"""Sub-blocks whose two halves of sixteen columns have scales of their own. Not here: formats, how many bits.

The halves' sums are whole numbers and so are the scales: their products and sum are exact, one float chain a sub-block.
"""

from engine.kernels.act import LESS, LESS_FIRST
from engine.kernels.dots import OWED, dot_row
from engine.kernels.jit import inner
from engine.kernels.simd import halves8, ld_i8x32
from engine.kernels.wide import add_i32, and_i32, bc_i32, mul_i32, shl_i32, sub_i32, zero_i32


@inner
def row_halves(row_values, w, stride, j, x):
    """Sums over the first and the last sixteen columns of eight file rows, their 32 weights as row_values gives."""
    a, u = ld_i8x32(x), w + 4 * stride
    return halves8(
        dot_row(row_values(w, j), a), dot_row(row_values(w + stride, j), a),
        dot_row(row_values(w + 2 * stride, j), a), dot_row(row_values(w + 3 * stride, j), a),
        dot_row(row_values(u, j), a), dot_row(row_values(u + stride, j), a),
        dot_row(row_values(u + 2 * stride, j), a), dot_row(row_values(u + 3 * stride, j), a),
    )  # fmt: skip


@inner
def scaled(first, second, scale, other):
    """first * scale + second * other, in whole numbers."""
    return add_i32(mul_i32(first, scale), mul_i32(second, other))


@inner
def half_starts(like, x):
    """What dot_i8_half's two sums start from."""
    if OWED < 0:
        return zero_i32(like), zero_i32(like)
    first = shl_i32(and_i32(bc_i32(like, x + LESS_FIRST), -32), OWED - 5)
    return first, sub_i32(shl_i32(bc_i32(like, x + LESS), OWED), first)
