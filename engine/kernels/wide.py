"""Operations on eight lanes or sixteen: the arguments' own width decides. Not here: fixed widths (simd.py), products.

Sixteen lanes are two panels next to each other where registers are 512 bits wide: half the instructions, the same
arithmetic in each lane. A weight vector of 4 n bytes has n lanes.
"""

from collections.abc import Callable
from typing import Any

from engine.kernels.simd import FMA
from engine.kernels.vec import F32, I32, Vec, call, cgutils, ir, make_any, read, shuffle, splat, types, write

from numba.extending import intrinsic  # isort: skip


def _lanes(like: Any) -> int:
    return like.n // 4 if like.elt == "i8" else like.n


def _same(first: Any, *_others: Any) -> Any:
    return first


def _f32(like: Any, *_others: Any) -> Any:
    return Vec("f32", _lanes(like))


def _i32(like: Any, *_others: Any) -> Any:
    return Vec("i32", _lanes(like))


def _broadcast(kind: Any) -> Callable[..., Any]:
    def emit(b: Any, like: Any, p: Any) -> Any:
        n = like.type.count // (4 if like.type.element.intrinsic_name == "i8" else 1)
        return splat(b, read(b, p, kind), Vec("f32" if kind == F32 else "i32", n))

    return emit


def _fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    return call(b, f"llvm.{'fma' if FMA else 'fmuladd'}.v{x.type.count}f32", x.type, [x, y, z])


def _and(b: Any, v: Any, mask: Any) -> Any:
    return b.and_(v, splat(b, b.trunc(mask, I32), Vec("i32", v.type.count)))


def _shl(b: Any, v: Any, n: Any) -> Any:
    return b.shl(v, splat(b, b.trunc(n, I32), Vec("i32", v.type.count)))


def _sar(b: Any, v: Any, n: Any) -> Any:
    return b.ashr(v, splat(b, b.trunc(n, I32), Vec("i32", v.type.count)))


bc_f32 = make_any(2, _f32, _broadcast(F32))  # (like, p): the float at p in every lane
bc_i32 = make_any(2, _i32, _broadcast(I32))
zero_i32 = make_any(1, _i32, lambda b, like: ir.Constant(ir.VectorType(I32, like.type.count // 4), None))
mul_f32 = make_any(2, _same, lambda b, x, y: b.fmul(x, y))
fma_f32 = make_any(3, _same, _fma)  # x * y + z
to_f32 = make_any(1, _f32, lambda b, x: b.sitofp(x, ir.VectorType(F32, x.type.count)))
add_i32 = make_any(2, _same, lambda b, x, y: b.add(x, y))
sub_i32 = make_any(2, _same, lambda b, x, y: b.sub(x, y))
and_i32 = make_any(2, _same, _and)  # with a number
mul_i32 = make_any(2, _same, lambda b, x, y: b.mul(x, y))
shl_i32 = make_any(2, _same, _shl)  # by a count
sar_i32 = make_any(2, _same, _sar)  # down by a count, the sign kept
shl_each = make_any(2, _same, lambda b, x, y: b.shl(x, y))  # by the counts in the lanes of y

f32x16 = Vec("f32", 16)
ld_f32x16 = make_any(1, lambda p: f32x16, lambda b, p: read(b, p, f32x16.ir))
st_f32x16 = make_any(2, lambda p, v: types.void, write)


@intrinsic
def side_by_side(_typing, left, right):  # type: ignore[no-untyped-def]
    """Two tuples of n-lane vectors -> one of 2 n lanes: a pair of panels."""
    both = types.Tuple([Vec(v.elt, 2 * v.n) for v in left.types])

    def codegen(context: Any, b: Any, _signature: Any, values: Any) -> Any:
        a, z = (cgutils.unpack_tuple(b, v) for v in values)
        joined = [shuffle(b, v, range(2 * v.type.count), w) for v, w in zip(a, z, strict=True)]
        return context.make_tuple(b, both, joined)

    return both(left, right), codegen


