"""Powers of two kept as a byte, E8M0 of the OCP Microscaling formats (MX, v1.0), halved. Not here: half floats.

Half of 2^(e - 127), because the weights beside it are doubled whole numbers. The two smallest are subnormal floats.
255, which the standard calls NaN, is 2^127, as in every file's reference decoder.
"""

from typing import Any

from engine.kernels.vec import F32, I8, I32, I64, f32, f32x8, i8x8, i32x8, i64, ir, make, read


def _halved(b: Any, e: Any) -> Any:
    """i32 or i32x8 of 0..255 -> floats."""
    vector = isinstance(e.type, ir.VectorType)
    k = lambda v: ir.Constant(e.type, [v] * e.type.count if vector else v)  # noqa: E731
    small = b.shl(k(0x00200000), b.and_(e, k(1)))
    bits = b.select(b.icmp_signed("<", e, k(2)), small, b.shl(b.sub(e, k(1)), k(23)))
    return b.bitcast(bits, ir.VectorType(F32, e.type.count) if vector else F32)


def _column(b: Any, p: Any, stride: Any) -> Any:
    v = ir.Constant(i8x8.ir, ir.Undefined)
    for r in range(8):
        v = b.insert_element(v, read(b, b.add(p, b.mul(stride, ir.Constant(I64, r))), I8), ir.Constant(I32, r))
    return _halved(b, b.zext(v, i32x8.ir))


ld_e8m0 = make(f32, (i64,), lambda b, p: _halved(b, b.zext(read(b, p, I8), I32)))
ld_e8m0x8 = make(f32x8, (i64,), lambda b, p: _halved(b, b.zext(read(b, p, i8x8.ir), i32x8.ir)))
column_e8m0 = make(f32x8, (i64, i64), _column)  # out of eight rows `stride` bytes apart
