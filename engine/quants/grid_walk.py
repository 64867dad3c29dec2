"""What the formats share whose weights stand in tables: eight rows looked up, turned into groups, multiplied.

Such a format gives, beside ACT, ROW, PANEL and SUBS as in walk.py,

    row_values    (w, j) -> i8x32        a file row's 32 weights of sub-block j, as whole numbers
    head_rows     (w, stride) -> vectors of what a block of eight file rows says once
    scales        (h, j) -> (d, s) or, with HALVES, (d, s, s') for the first and the last sixteen columns

A panel block is the file blocks of its eight rows, one after the other. Per sub-block of 32 and row:
acc = fma(d * dx, s * sum(q * x), acc), the sums whole numbers. Not here: a walk made for speed; one look-up serves a
tile of tokens, so a prompt hardly feels it. `grid_walks(globals())` binds these functions as walk.py's are bound.
"""
# ruff: noqa: F821

from typing import Any

from engine.kernels.dots import OWED, dot_i8, dot_i8_half
from engine.kernels.grids import turned
from engine.kernels.jit import Kernel, inner, kernel
from engine.kernels.simd import i2f, ld_f32_i8x8, ld_u8, mul_f32x8, st_f32x8, st_i8x32, st_u8
from engine.kernels.wide import mul_i32, zero_i32
from engine.quants.dot32 import less
from engine.quants.halves import half_starts, scaled
from engine.quants.joins import plain
from engine.quants.walk import block_loop, bound, walks


def eight_rows(w, stride, j):
    """Sub-block j of eight file rows as a panel's vectors."""
    u = w + 4 * stride
    return turned(
        row_values(w, j), row_values(w + stride, j), row_values(w + 2 * stride, j), row_values(w + 3 * stride, j),
        row_values(u, j), row_values(u + stride, j), row_values(u + 2 * stride, j), row_values(u + 3 * stride, j),
    )  # fmt: skip


def head(w):
    return head_rows(w, ROW)


def values(w, j):
    return eight_rows(w, ROW, j)


def start(like, x):
    return less(like, x, OWED) if OWED >= 0 else zero_i32(like)


def total(v, c, x):
    return mul_i32(dot_i8(start(v[0], x), v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], x), c[1])


def total_halves(v, c, x):
    first, second = half_starts(v[0], x)
    return scaled(
        dot_i8_half(first, v[0], v[1], v[2], v[3], x), dot_i8_half(second, v[4], v[5], v[6], v[7], x + 16), c[1], c[2]
    )


def total_rows(w, stride, c, j, x):
    return total(eight_rows(w, stride, j), c, x)


def pack_block(w, stride, out):
    for r in range(8):
        for i in range(ROW):
            st_u8(out + r * ROW + i, ld_u8(w + r * stride + i))


def unpack_row(row, n, out):
    for _ in range(n):
        h = head_rows(row, 0)  # eight times this row
        for j in range(SUBS):
            c, whole = scales(h, j), out + 96  # of the 32 floats at out, the last quarter of which is written last
            st_i8x32(whole, row_values(row, j))
            for i in range(4):
                s = mul_f32x8(c[0], i2f(c[1] if i < 2 else c[-1]))
                st_f32x8(out + 32 * i, mul_f32x8(s, ld_f32_i8x8(whole + 8 * i)))
            out += 128
        row += ROW


def grid_walks(space: dict[str, Any]) -> tuple[Kernel, Kernel, Kernel, Kernel]:
    """`panels`, `rows`, `pack` and `unpack_row` of the format whose module's globals are `space`."""
    names = {**globals(), **space, "join": plain}
    for function in (eight_rows, head, values, start, total_halves if space.get("HALVES") else total, total_rows):
        name = function.__name__.removesuffix("_halves")
        names[name] = inner(bound(function, names))
    names["pack_block"] = inner(bound(pack_block, names))
    names["STEPS"] = block_loop
    whole = {key: names[key] for key in names if key not in ("walks", "grid_walks")}
    return (*walks(whole), kernel(3)(bound(unpack_row, names)))
