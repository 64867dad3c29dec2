"""The walks over blocks that every format shares: one token, a few, a tile, from panels or from file rows.

A walk is written once here over names that are free in this file and that each format's module gives:

    ROW, PANEL    bytes of a block in a file row; of eight rows' block in a panel
    SUBS          sub-blocks of 32 columns in a block
    head          (w) -> vectors             what a block says once: scales, eight rows in the lanes
    head_rows     (w, stride) -> vectors     the same of eight file rows
    scales        (h, j) -> vectors          of sub-block j
    values        (w, j) -> eight i8x32      weights of sub-block j: byte 4r + c of vector g is row r's column 4g + c
    start         (like, x) -> i32 lanes     what totals start from: an offset of the weights taken away
    total         (v, c, x) -> i32x8         sums over 32 columns; x an activation block, c what `scales` gave
    row_values    (w, j) -> i8x32            a file row's 32 weights, column after column
    total_rows    (w, stride, c, j, x)       the same as `total` of eight file rows; has a default made of row_values
    join          (acc, total, c, x) -> acc  one step of the f32 chain
    pack_block    (w, stride, out)           eight file rows' block to a panel's
    AHEAD         bytes; may be left out     how far ahead of its block one token has long rows of 256-blocks fetched
    STEPS         may be left out            block_loop where `block_steps` is too much code

`walks(globals())` at the end of a module binds copies of these functions to the module's own names. numba resolves a
global name when it compiles, so each copy becomes a kernel of that format. Not here: any format; the chains of float
types (floats.py), which give one, tile, one_row and pack_eight themselves.
"""
# ruff: noqa: F821

from collections.abc import Callable
from types import FunctionType
from typing import Any

from engine.kernels.act import BLOCK, LESS_FIRST
from engine.kernels.isa import ISA
from engine.kernels.jit import Kernel, inner, kernel
from engine.kernels.dots import dot_row
from engine.kernels.simd import add_i32x8, ld_f32x8, ld_i8x32, ld_u8, prefetch, st_f32x8, sums8, z_f32x8
from engine.kernels.wide import ld_f32x16, side_by_side, st_f32x16
from engine.quants.panels import GROUP, put, put_all, zero


PAIRS = ISA.level == "avx512"  # two panels fill a register
WHOLE = 1 << 40  # blocks
FEW = 32  # tokens whose activations stay in L2 whole: their panels are read in ascending order
LONG = 16  # blocks of 256 in a row from which on prefetching pays
COLUMNS = 2048  # of a segment, whose activations of TOKENS tokens stay in L2 while GROUP panels meet them


def step(acc, v, c, x, fine):
    """A sub-block of one token: coarse, then fine where there is a fine half."""
    acc = join(acc, total(v, c, x), c, x)
    if ld_u8(x + LESS_FIRST) & 1:
        acc = join(acc, total(v, c, x + fine), c, x + fine)
    return acc


def block_steps(acc, w, h, x, next_x, fine):
    """A block of one token."""
    acc = step(acc, values(w, 0), scales(h, 0), x, fine)
    if SUBS == 8:  # written out: shifts are constants and sub-blocks share loads, a third faster for Q6_K
        acc = step(acc, values(w, 1), scales(h, 1), x + next_x, fine)
        acc = step(acc, values(w, 2), scales(h, 2), x + 2 * next_x, fine)
        acc = step(acc, values(w, 3), scales(h, 3), x + 3 * next_x, fine)
        acc = step(acc, values(w, 4), scales(h, 4), x + 4 * next_x, fine)
        acc = step(acc, values(w, 5), scales(h, 5), x + 5 * next_x, fine)
        acc = step(acc, values(w, 6), scales(h, 6), x + 6 * next_x, fine)
        acc = step(acc, values(w, 7), scales(h, 7), x + 7 * next_x, fine)
    return acc


def block_loop(acc, w, h, x, next_x, fine):
    """The same, not written out, for formats of much code, which would take long to compile."""
    for j in range(SUBS):
        acc = step(acc, values(w, j), scales(h, j), x, fine)
        x += next_x
    return acc


def one(w, act, T, t, n):
    """Token t of T times one panel of n blocks: eight results."""
    x, next_x, fine = act + t * BLOCK, T * BLOCK, n * SUBS * T * BLOCK
    acc = z_f32x8()
    for _ in range(n):
        if AHEAD and n > LONG:  # hardware loses a panel's trail where the activations fill L1
            for i in range(0, PANEL, 64):
                prefetch(w + AHEAD + i)
        acc = block_steps(acc, w, head(w), x, next_x, fine)
        x += SUBS * next_x
        w += PANEL
    return acc


def tile(w, act, T, t0, t1, n, b0, b1, out):
    """Tokens t0..t1 times blocks b0..b1 of one panel; `out` holds their accumulators, one vector a token."""
    x, fine = act + b0 * SUBS * T * BLOCK, n * SUBS * T * BLOCK
    w += b0 * PANEL
    for _ in range(b1 - b0):
        h = head(w)
        for j in range(SUBS):
            v, c = values(w, j), scales(h, j)
            a = out
            for y in range(x + t0 * BLOCK, x + t1 * BLOCK, BLOCK):
                st_f32x8(a, step(ld_f32x8(a), v, c, y, fine))
                a += 32
            x += T * BLOCK
        w += PANEL


def tile_pair(w, act, T, t0, t1, n, b0, b1, out):
    """The same of two neighbouring panels, side by side in sixteen lanes; two vectors a token."""
    x, fine = act + b0 * SUBS * T * BLOCK, n * SUBS * T * BLOCK
    w += b0 * PANEL
    u = w + n * PANEL
    for _ in range(b1 - b0):
        h, g = head(w), head(u)
        for j in range(SUBS):
            v, c = side_by_side(values(w, j), values(u, j)), side_by_side(scales(h, j), scales(g, j))
            a = out
            for y in range(x + t0 * BLOCK, x + t1 * BLOCK, BLOCK):
                st_f32x16(a, step(ld_f32x16(a), v, c, y, fine))
                a += 64
            x += T * BLOCK
        w += PANEL
        u += PANEL


def total_rows(w, stride, _c, j, x):
    """Sums of unsigned weights, eight rows in the lanes."""
    a, u = ld_i8x32(x), w + 4 * stride
    sums = sums8(
        dot_row(row_values(w, j), a), dot_row(row_values(w + stride, j), a),
        dot_row(row_values(w + 2 * stride, j), a), dot_row(row_values(w + 3 * stride, j), a),
        dot_row(row_values(u, j), a), dot_row(row_values(u + stride, j), a),
        dot_row(row_values(u + 2 * stride, j), a), dot_row(row_values(u + 3 * stride, j), a),
    )  # fmt: skip
    return add_i32x8(start(a, x), sums)


def row_step(acc, w, stride, h, j, x, fine):
    """The same of eight file rows."""
    c = scales(h, j)
    acc = join(acc, total_rows(w, stride, c, j, x), c, x)
    if ld_u8(x + LESS_FIRST) & 1:
        acc = join(acc, total_rows(w, stride, c, j, x + fine), c, x + fine)
    return acc


def one_row(w, stride, act, T, t, n, _panel):
    """Token t of T times eight file rows, `stride` bytes apart."""
    x, next_x, fine = act + t * BLOCK, T * BLOCK, n * SUBS * T * BLOCK
    acc, ahead = z_f32x8(), w + 8 * stride  # the next eight rows: hardware follows no eight streams
    for _ in range(n):
        for i in range(0, 8 * ROW, 64):
            prefetch(ahead + i)
        h = head_rows(w, stride)
        for j in range(SUBS):
            acc = row_step(acc, w, stride, h, j, x, fine)
            x += next_x
        w += ROW
        ahead += 8 * ROW
    return acc


def pack_eight(w, n, out):
    """Eight file rows of n blocks, one after the other, to a panel."""
    stride = n * ROW
    for _ in range(n):
        pack_block(w, stride, out)
        w += ROW
        out += PANEL


def group(w, apart, act, T, t0, t1, n, y, ldy, p0, p1, scratch, add):
    """Tokens t0..t1 times panels p0..p1, `apart` bytes from one to the next, segment by segment of their columns."""
    size, step = (t1 - t0) * 32, SEGMENT if t1 - t0 > FEW else n
    zero(scratch, (t1 - t0) * (p1 - p0))
    for b0 in range(0, n, step):
        b1, p = min(b0 + step, n), p0
        while p < p1:
            panel, out = w + (p - p0) * apart, scratch + (p - p0) * size
            if PAIRS and p + 1 < p1:
                tile_pair(panel, act, T, t0, t1, n, b0, b1, out)
                p += 2
            else:
                tile(panel, act, T, t0, t1, n, b0, b1, out)
                p += 1
    p = p0
    while p < p1:
        out = scratch + (p - p0) * size
        if PAIRS and p + 1 < p1:
            put_all(y + p * 32, ldy, t0, t1, out, 64, add)
            put_all(y + p * 32 + 32, ldy, t0, t1, out + 32, 64, add)
            p += 2
        else:
            put_all(y + p * 32, ldy, t0, t1, out, 32, add)
            p += 1


def panels(w, act, T, t0, t1, n, y, ldy, p0, p1, scratch, add):
    apart = n * PANEL
    if t1 - t0 == 1:
        for p in range(p0, p1):
            put(y + p * 32 + t0 * ldy, one(w + p * apart, act, T, t0, n), add)
    else:
        for p in range(p0, p1, GROUP):
            group(w + p * apart, apart, act, T, t0, t1, n, y, ldy, p, min(p + GROUP, p1), scratch, add)


def rows(w, act, T, t0, t1, n, y, ldy, p0, p1, scratch, add):
    apart, panel = n * PANEL, scratch + (t1 - t0) * 64
    for p in range(p0, p1, 2):
        eight, q = w + p * 8 * n * ROW, min(p + 2, p1)
        if t1 - t0 == 1:
            for r in range(p, q):
                put(y + r * 32 + t0 * ldy, one_row(w + r * 8 * n * ROW, n * ROW, act, T, t0, n, panel), add)
        else:
            for r in range(p, q):
                pack_eight(eight + (r - p) * 8 * n * ROW, n, panel + (r - p) * apart)
            group(panel, apart, act, T, t0, t1, n, y, ldy, p, q, scratch, add)


def pack(file_rows, n, out):
    pack_eight(file_rows, n, out)


def walks(space: dict[str, Any]) -> tuple[Kernel, Kernel, Kernel]:
    """`panels`, `rows` and `pack` of the format whose module's globals are `space`; what it defines itself is kept."""
    names = {"AHEAD": 0, **globals(), **space}
    names["SEGMENT"] = max(1, COLUMNS // (32 * space["SUBS"])) if "SUBS" in space else WHOLE
    steps = space.get("STEPS", block_steps)
    names["block_steps"] = inner(bound(steps, names))
    for function in (step, one, tile, tile_pair, total_rows, row_step, one_row, pack_eight, group):
        if function.__name__ not in space:
            names[function.__name__] = inner(bound(function, names))
    if not names["PAIRS"]:
        names["tile_pair"] = names["tile"]  # never called, but compiled, and sixteen lanes are not everybody's
    return kernel(12)(bound(panels, names)), kernel(12)(bound(rows, names)), kernel(3)(bound(pack, names))


def bound(function: Callable[..., Any], names: dict[str, Any]) -> Any:
    """The same code over other globals."""
    return FunctionType(function.__code__, names, function.__name__)
