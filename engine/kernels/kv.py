"""What the types of keys and values share: their place in a page, the ops that store them. Not here: a type's layout.

A type is a module kv_*.py with five kernels over one kv head's part of a page (256 positions, head_dim dims):

    put_k(x, head_dim, r, k)   put_v(x, head_dim, r, v)      position r of the page from floats at x
    prepare(q, head_dim, out)                                a query as `scores` wants it, in 4 * head_dim bytes
    scores(k, q, q_bytes, n_q, first, n, head_dim, out)      out f32 [n_q][256]: products of n_q <= WIDTH prepared
                                                             queries with positions first..n-1
    mix(v, w, n_q, first, n, head_dim, out, out_bytes)       out f32 [n_q] rows: sums over first..n-1 of w [n_q][256]
                                                             times V; may overwrite f32 [WIDTH][256] behind w

Values lie in slices of 16 dims, [256 positions][16], a last one of 8 where head_dim is no multiple of 16: what a pass
over the positions reads lies together. Whole positions of 64 dims, read in four strided passes, came at 8.6 GB/s.

`first` is a multiple of 64: `scores` may write whole groups of up to 64 positions, never past 255. A query's numbers
depend neither on its company nor on `first`, as long as weights below its own first position are zeros.
"""

from collections.abc import Callable, Sequence
from typing import Any

from engine.kernels.jit import inner, op
from engine.kernels.norm import normalise
from engine.kernels.rope import rope
from engine.kernels.simd import (
    F32, I64, _fma, _prefetch, const, f32x8, i64, ir, ld_f32, ld_i64, make, read, splat, void, write,
)  # fmt: skip
from engine.kernels.step import N_ROWS, PAGE, PAGES, POSITIONS
from engine.kernels.sync import atomic_add, invoke_put
from engine.kernels.vmath import loop

TILE = PAGE * 4  # bytes of one query's scores
WIDTH = 6  # most queries that share reads: 6 x 2 chains, what they read and a spare are the sixteen registers


def at(b: Any, p: Any, i: Any, step: int) -> Any:
    """IR: p + i * step."""
    return b.add(p, b.mul(i, ir.Constant(I64, step)))


def for_each_width(b: Any, n_q: Any, emit: Callable[[int], None]) -> None:
    """IR: emit(c) where n_q == c, for c in 1..WIDTH."""
    for c in range(1, WIDTH + 1):
        with b.if_then(b.icmp_signed("==", n_q, ir.Constant(I64, c))):
            emit(c)


def groups(b: Any, n: Any, size: int) -> Any:
    """IR: n / size rounded up."""
    return b.sdiv(b.add(n, ir.Constant(I64, size - 1)), ir.Constant(I64, size))


def mixer(vec_bytes: int, widths: Sequence[int], load: Callable[[Any, Any, int], list[Any]]) -> Any:
    """IR of `mix` for n_vecs vectors of 8 dims, vec_bytes each: lane = dim, one chain over the positions per dim.

    `load(b, address, n)` gives one or two neighbouring vectors as floats; widths[n_q - 1] of them are read together.
    `ahead`: bytes from these vectors to those of the next call, which are asked for meanwhile; 0: there are none.
    """
    row, part = 2 * vec_bytes, 2 * vec_bytes * PAGE  # bytes of a position in a slice, of a slice

    def emit(b: Any, v: Any, n_vecs: Any, w: Any, n_q: Any, first: Any, n: Any, out: Any, out_bytes: Any,
             ahead: Any) -> None:  # fmt: skip
        c64 = lambda x: ir.Constant(I64, x)  # noqa: E731
        n_slices, odd, count = b.sdiv(n_vecs, c64(2)), b.srem(n_vecs, c64(2)), b.sub(n, first)

        def group(c: int, size: int, index: Any, step: int) -> None:
            """`size` vectors of c queries from slice `index` on, a position every `step` bytes."""
            ws = [b.add(at(b, w, first, 4), c64(i * TILE)) for i in range(c)]
            start = b.add(at(b, v, index, part), b.mul(first, c64(step)))

            def body(p: Any, acc: Sequence[Any]) -> list[Any]:
                here, xs = at(b, start, p, step), []
                if vec_bytes <= 8:  # floats are read as fast as memory gives them
                    _prefetch(b, b.add(at(b, start, p, step * (size // 2)), ahead))
                for j in range(0, size, 2):
                    xs += load(b, b.add(here, c64(j // 2 * part)), min(2, size))
                weights = [splat(b, read(b, at(b, q, p, 4), F32), f32x8) for q in ws]
                return [_fma(b, weights[i], x, acc[j * c + i]) for j, x in enumerate(xs) for i in range(c)]

            acc = loop(b, count, [const(f32x8, 0.0)] * (c * size), body)
            for i in range(c):
                to = at(b, b.add(out, b.mul(out_bytes, c64(i))), index, 64)
                for j in range(size):
                    write(b, b.add(to, c64(j * 32)), acc[j * c + i])

        def some(c: int) -> None:
            slices = widths[c - 1] // 2
            whole = b.sdiv(n_slices, c64(slices))

            def step(i: Any, _: Sequence[Any]) -> list[Any]:
                group(c, 2 * slices, b.mul(i, c64(slices)), row)
                return []

            def rest(i: Any, _: Sequence[Any]) -> list[Any]:
                group(c, 2, b.add(b.mul(whole, c64(slices)), i), row)
                return []

            def half(_i: Any, _: Sequence[Any]) -> list[Any]:
                group(c, 1, n_slices, row // 2)
                return []

            loop(b, whole, [], step)
            if vec_bytes > 8:  # a quantised block is always whole groups
                if slices > 1:
                    loop(b, b.srem(n_slices, c64(slices)), [], rest)
                loop(b, odd, [], half)

        for_each_width(b, n_q, some)

    return make(void, (i64,) * 9, emit)


@inner
def value_at(v, head_dim, r, d, vec_bytes):
    """Address of dims d..d+7 of position r in a V part."""
    start = v + d // 16 * (2 * vec_bytes * PAGE)
    if d % 16 == 0 and d + 8 == head_dim:
        return start + r * vec_bytes
    return start + r * 2 * vec_bytes + d % 16 // 8 * vec_bytes


@inner
def page_of(st, row, tile, table):
    """Address of page `tile` of a row's sequence, from the part of its page table that begins at byte `table`."""
    return ld_i64(ld_i64(ld_i64(st + PAGES) + row * 8) + table + tile * 8)


@op
def store_k(o, tid, nth, st):
    """Normalise keys (RMS, if there is a weight), rotate them, both in place, and store them.

    words: 1 first key column of qkv f32 [rows][ld]; 2 ld (floats); 3 n_kv_heads; 4 head_dim; 5 rope_dim; 6 table;
    7 neox; 8 layer offset in a page; 9 bytes of one kv head there (K and V); 10 put_k of the K type;
    11 weight of the norm f32 [head_dim] or 0; 12 its eps as float32; 13 the layer's part of a page table (bytes);
    15 counter.
    """
    keys, ld, n_heads, head_dim = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32)
    rope_dim, table, neox = ld_i64(o + 40), ld_i64(o + 48), ld_i64(o + 56)
    layer, head_bytes, weight, eps = ld_i64(o + 64), ld_i64(o + 72), ld_i64(o + 88), ld_f32(o + 96)
    counter, n_units = ld_i64(o + 120), ld_i64(st + N_ROWS) * n_heads
    while True:
        c = atomic_add(counter, 1)
        if c >= n_units:
            return
        row, h = c // n_heads, c % n_heads
        position = ld_i64(ld_i64(st + POSITIONS) + row * 8)
        x = keys + (row * ld + h * head_dim) * 4
        if weight != 0:
            normalise(x, weight, head_dim, eps, x)
        rope(x, table + position * rope_dim * 4, rope_dim, neox)
        part = page_of(st, row, position // PAGE, ld_i64(o + 104)) + layer + h * head_bytes
        invoke_put(ld_i64(o + 80), x, head_dim, position % PAGE, part)


@op
def store_v(o, tid, nth, st):
    """Store values.

    words: 1 first value column of qkv f32 [rows][ld]; 2 ld (floats); 3 n_kv_heads; 4 head_dim; 5 layer offset in a
    page + the K bytes of a head; 6 bytes of one kv head there (K and V); 7 put_v of the V type;
    8 the layer's part of a page table (bytes); 15 counter.
    """
    values, ld, n_heads, head_dim = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32)
    offset, head_bytes = ld_i64(o + 40), ld_i64(o + 48)
    counter, n_units = ld_i64(o + 120), ld_i64(st + N_ROWS) * n_heads
    while True:
        c = atomic_add(counter, 1)
        if c >= n_units:
            return
        row, h = c // n_heads, c % n_heads
        position = ld_i64(ld_i64(st + POSITIONS) + row * 8)
        part = page_of(st, row, position // PAGE, ld_i64(o + 64)) + offset + h * head_bytes
        invoke_put(ld_i64(o + 56), values + (row * ld + h * head_dim) * 4, head_dim, position % PAGE, part)
