"""Loads, stores, float and i32 arithmetic on vectors, as LLVM IR. Not here: bytes, dot products (dots.py), loops.

A name says what comes out: ld_f32x8(p) loads eight floats, bc_f32x8(p) repeats the float at p in every lane,
sp_f32x8(x) repeats the value x. Addresses are int64; every load is unaligned; nothing is checked: a program's extents
are asserted when it is recorded. 256-bit vectors are the only width; SSE4 runs each as two halves (LLVM splits them).
"""

from collections.abc import Callable
from typing import Any

from engine.kernels.half import F16C, load_bf16, load_f16, store_f16, widen
from engine.kernels.isa import ISA
from engine.kernels.vec import (
    F32, I8, I16, I32, I64, Vec, call, const, f16x8, f32, f32x8, i8x8, i8x16, i8x32, i16x8, i16x16, i32,
    i32x8, i64, ir, make, read, shuffle, splat, types, void, write,
)  # fmt: skip

FMA = ISA.fma


# --- memory ------------------------------------------------------------------------------------------------------


def _load(vt: Vec) -> Any:
    return make(vt, (i64,), lambda b, p: read(b, p, vt.ir))


def _store(vt: Vec) -> Any:
    return make(void, (i64, vt), write)


ld_f32x8, ld_i32x8, ld_i8x32, ld_i8x16, ld_i8x8 = map(_load, (f32x8, i32x8, i8x32, i8x16, i8x8))
st_f32x8, st_i32x8, st_i8x32, st_i8x16, st_i8x8 = map(_store, (f32x8, i32x8, i8x32, i8x16, i8x8))
ld_f16x8 = make(f32x8, (i64,), lambda b, p: load_f16(b, p, 8))
st_f16x8 = make(void, (i64, f32x8), store_f16)
ld_bf16x8 = make(f32x8, (i64,), lambda b, p: load_bf16(b, p, 8))
ld_f32_i8x8 = make(  # eight int8 as floats
    f32x8, (i64,), lambda b, p: b.sitofp(b.sext(read(b, p, i8x8.ir), i32x8.ir), f32x8.ir)
)

ld_f32 = make(f32, (i64,), lambda b, p: read(b, p, F32))
ld_f16 = make(f32, (i64,), lambda b, p: load_f16(b, p, None))
ld_bf16 = make(f32, (i64,), lambda b, p: load_bf16(b, p, None))
ld_i32 = make(i32, (i64,), lambda b, p: read(b, p, I32))
ld_u32 = make(i64, (i64,), lambda b, p: b.zext(read(b, p, I32), I64))
ld_i64 = make(i64, (i64,), lambda b, p: read(b, p, I64))
ld_i16 = make(i64, (i64,), lambda b, p: b.sext(read(b, p, I16), I64))
ld_u8 = make(i64, (i64,), lambda b, p: b.zext(read(b, p, I8), I64))
ld_i8 = make(i64, (i64,), lambda b, p: b.sext(read(b, p, I8), I64))
st_f32 = make(void, (i64, f32), write)
st_i32 = make(void, (i64, i32), write)
st_i64 = make(void, (i64, i64), write)
st_i16 = make(void, (i64, i64), lambda b, p, x: write(b, p, b.trunc(x, I16)))
st_u8 = make(void, (i64, i64), lambda b, p, x: write(b, p, b.trunc(x, I8)))
st_f16 = make(void, (i64, f32), store_f16)

def _prefetch(b: Any, p: Any) -> None:
    """Ask for the cache line at p, in every level; p may lie anywhere."""
    at = b.inttoptr(p, I8.as_pointer())
    call(b, "llvm.prefetch.p0", ir.VoidType(), [at, *(ir.Constant(I32, k) for k in (0, 3, 1))])


prefetch = make(void, (i64,), _prefetch)

bc_f32x8 = make(f32x8, (i64,), lambda b, p: splat(b, read(b, p, F32), f32x8))
bc_i32x8 = make(i32x8, (i64,), lambda b, p: splat(b, read(b, p, I32), i32x8))
bc4_i8x32 = make(i8x32, (i64,), lambda b, p: b.bitcast(splat(b, read(b, p, I32), i32x8), i8x32.ir))  # four bytes

# --- arithmetic --------------------------------------------------------------------------------------------------


def _zero(vt: Vec) -> Any:
    return make(vt, (), lambda b: const(vt, 0.0 if vt.elt[0] == "f" else 0))


def _binary(vt: Vec, name: str) -> Any:
    return make(vt, (vt, vt), lambda b, x, y: getattr(b, name)(x, y))


def _fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    # Without FMA the true llvm.fma would be a call into libm; fmuladd rounds twice instead.
    return call(b, "llvm.fma.v8f32" if FMA else "llvm.fmuladd.v8f32", f32x8.ir, [x, y, z])


def _minmax(name: str) -> Any:
    return make(f32x8, (f32x8, f32x8), lambda b, x, y: call(b, f"llvm.{name}.v8f32", f32x8.ir, [x, y]))


def _unary(name: str) -> Any:
    return make(f32x8, (f32x8,), lambda b, x: call(b, f"llvm.{name}.v8f32", f32x8.ir, [x]))


z_f32x8, z_i32x8, z_i16x16 = map(_zero, (f32x8, i32x8, i16x16))
sp_f32x8 = make(f32x8, (f32,), lambda b, x: splat(b, x, f32x8))
sp_i32x8 = make(i32x8, (i32,), lambda b, x: splat(b, x, i32x8))
add_f32x8, sub_f32x8, mul_f32x8, div_f32x8 = (_binary(f32x8, o) for o in ("fadd", "fsub", "fmul", "fdiv"))
add_i32x8 = _binary(i32x8, "add")
or_i32x8 = _binary(i32x8, "or_")
shl_i32x8 = make(i32x8, (i32x8, i64), lambda b, v, n: b.shl(v, splat(b, b.trunc(n, I32), i32x8)))
add_i16x16, or_i8x32, xor_i8x32 = _binary(i16x16, "add"), _binary(i8x32, "or_"), _binary(i8x32, "xor")
fma_f32x8 = make(f32x8, (f32x8, f32x8, f32x8), _fma)
max_f32x8, min_f32x8 = _minmax("maxnum"), _minmax("minnum")
abs_f32x8, round_f32x8, sqrt_f32x8 = _unary("fabs"), _unary("nearbyint"), _unary("sqrt")
i2f = make(f32x8, (i32x8,), lambda b, x: b.sitofp(x, f32x8.ir))
f2i = make(i32x8, (f32x8,), lambda b, x: b.fptosi(x, i32x8.ir))
low8 = make(i8x8, (i32x8,), lambda b, x: b.trunc(x, i8x8.ir))  # the low byte of each lane
any_gt = make(  # does any lane of x exceed the same lane of y?
    types.boolean, (f32x8, f32x8),
    lambda b, x, y: b.icmp_unsigned("!=", b.bitcast(b.fcmp_ordered(">", x, y), I8), ir.Constant(I8, 0)),
)  # fmt: skip
zero_below = make(  # y where x >= limit, else exactly 0
    f32x8, (f32x8, f32x8, f32x8),
    lambda b, x, limit, y: b.select(b.fcmp_ordered(">=", x, limit), y, const(f32x8, 0.0)),
)  # fmt: skip
exp2i = make(  # 2^n for n in -126..127
    f32x8, (i32x8,), lambda b, n: b.bitcast(b.shl(b.add(n, const(i32x8, 127)), const(i32x8, 23)), f32x8.ir)
)
i32_of = make(i32, (i64,), lambda b, x: b.trunc(x, I32))


def _reduce(b: Any, v: Any, op: Callable[..., Any]) -> Any:
    """Fold lanes n/2.. onto 0..n/2 until one is left: a fixed tree, so the same bits everywhere."""
    n = v.type.count
    while n > 1:
        n //= 2
        v = op(b, v, shuffle(b, v, [n + i if i < n else 0 for i in range(v.type.count)]))
    return b.extract_element(v, ir.Constant(I32, 0))


sum_f32x8 = make(f32, (f32x8,), lambda b, v: _reduce(b, v, lambda b, x, y: b.fadd(x, y)))
sum_i32x8 = make(i32, (i32x8,), lambda b, v: _reduce(b, v, lambda b, x, y: b.add(x, y)))
top_f32x8 = make(
    f32, (f32x8,), lambda b, v: _reduce(b, v, lambda b, x, y: call(b, "llvm.maxnum.v8f32", f32x8.ir, [x, y]))
)


def _halves8(b: Any, *v: Any) -> tuple[Any, Any]:
    """Eight i32x8 -> two, lane r = the sum of lanes 0..3 of vector r, and of lanes 4..7."""
    while len(v) > 2:  # within 128-bit halves first, as crossing costs 3 cycles
        pairs = []
        for x, y in zip(v[0::2], v[1::2], strict=True):
            even = [0, 2, 8, 10, 4, 6, 12, 14]
            pairs.append(b.add(shuffle(b, x, even, y), shuffle(b, x, [i + 1 for i in even], y)))
        v = tuple(pairs)
    low, high = [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]
    return shuffle(b, v[0], low, v[1]), shuffle(b, v[0], high, v[1])


def _sums8(b: Any, *v: Any) -> Any:
    return b.add(*_halves8(b, *v))


sums8 = make(i32x8, (i32x8,) * 8, _sums8)  # lane r = the sum of vector r
halves8 = make(types.UniTuple(i32x8, 2), (i32x8,) * 8, _halves8)


def _turn8(b: Any, p: Any, stride: Any, out: Any) -> None:
    """Eight rows of eight f32, `stride` bytes apart, written to `out` with rows and columns exchanged."""
    rows = [read(b, b.add(p, b.mul(stride, ir.Constant(I64, r))), f32x8.ir) for r in range(8)]
    for width in (1, 2, 4):
        for r in range(8):
            if r & width == 0:
                x, y = rows[r], rows[r + width]
                keep = [i if i & width == 0 else 8 + (i ^ width) for i in range(8)]
                move = [(i | width) if i & width == 0 else 8 + i for i in range(8)]
                rows[r], rows[r + width] = shuffle(b, x, keep, y), shuffle(b, x, move, y)
    for c in range(8):
        write(b, b.add(out, ir.Constant(I64, c * 32)), rows[c])


turn8 = make(void, (i64, i64, i64), _turn8)

# --- columns of small numbers ----------------------------------------------------------------------------------------


def _column(b: Any, p: Any, stride: Any, kind: Any) -> Any:
    """The same small number out of eight rows `stride` bytes apart, as a vector: lane = row."""
    v = ir.Constant(ir.VectorType(kind, 8), ir.Undefined)
    for r in range(8):
        v = b.insert_element(v, read(b, b.add(p, b.mul(stride, ir.Constant(I64, r))), kind), ir.Constant(I32, r))
    return v


def _halves_to_f32(b: Any, v: Any) -> Any:
    """i16x8 bits of f16 -> f32x8."""
    if F16C:
        return b.fpext(b.bitcast(v, f16x8.ir), f32x8.ir)
    return widen(b, b.zext(v, i32x8.ir))


column_f16 = make(f32x8, (i64, i64), lambda b, p, s: _halves_to_f32(b, _column(b, p, s, I16)))
column_f32 = make(f32x8, (i64, i64), lambda b, p, s: _column(b, p, s, F32))
column_i32 = make(i32x8, (i64, i64), lambda b, p, s: _column(b, p, s, I32))  # two f16 of each row in one load
low_f16 = make(f32x8, (i32x8,), lambda b, v: _halves_to_f32(b, b.trunc(v, i16x8.ir)))
high_f16 = make(f32x8, (i32x8,), lambda b, v: _halves_to_f32(b, b.trunc(b.lshr(v, const(i32x8, 16)), i16x8.ir)))
