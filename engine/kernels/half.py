"""Half floats in LLVM IR, by instruction (F16C, NEON) or by integers. Not here: the names kernels use (simd.py).

Without F16C a half conversion in IR calls a library function that LLVM cannot find and the process aborts (reproduced);
integers do it then. Both ways are exact, subnormals, infinities and NaN included.
"""

from typing import Any

from engine.kernels.isa import ISA
from engine.kernels.vec import F16, F32, I16, I32, ir, read, write

F16C = ISA.converts_halves


def widen(b: Any, bits: Any) -> Any:
    """f16 bits as i32 vector or scalar -> f32: multiply by 2^112, then repair exponent 31."""
    it = bits.type
    ft = ir.VectorType(F32, it.count) if isinstance(it, ir.VectorType) else F32
    k = lambda x, t=it: ir.Constant(t, [x] * t.count) if isinstance(t, ir.VectorType) else ir.Constant(t, x)  # noqa: E731
    sign = b.shl(b.and_(bits, k(0x8000)), k(16))
    body = b.shl(b.and_(bits, k(0x7FFF)), k(13))
    scaled = b.bitcast(b.fmul(b.bitcast(body, ft), k(2.0**112, ft)), it)
    special = b.icmp_unsigned(">=", body, k(0x7C00 << 13))
    return b.bitcast(b.or_(b.select(special, b.or_(body, k(0x7F800000)), scaled), sign), ft)


def narrow(b: Any, x: Any) -> Any:
    """f32 -> f16 bits in i16, to nearest even."""
    vector = isinstance(x.type, ir.VectorType)
    it = ir.VectorType(I32, x.type.count) if vector else I32
    k = lambda v: ir.Constant(it, [v] * it.count) if vector else ir.Constant(it, v)  # noqa: E731
    bits = b.bitcast(x, it)
    size, sign = b.and_(bits, k(0x7FFFFFFF)), b.and_(b.lshr(bits, k(16)), k(0x8000))
    odd = b.and_(b.lshr(size, k(13)), k(1))
    normal = b.lshr(b.add(b.add(size, k((-112 << 23) + 0xFFF)), odd), k(13))
    magic = k(126 << 23)
    small = b.sub(b.bitcast(b.fadd(b.bitcast(size, x.type), b.bitcast(magic, x.type)), it), magic)
    out = b.select(b.icmp_unsigned("<", size, k(113 << 23)), small, normal)
    out = b.select(b.icmp_unsigned(">=", size, k(143 << 23)), k(0x7C00), out)
    out = b.select(b.icmp_unsigned(">", size, k(255 << 23)), k(0x7E00), out)
    return b.trunc(b.or_(out, sign), ir.VectorType(I16, it.count) if vector else I16)


def load_f16(b: Any, p: Any, n: int | None) -> Any:
    wrap = (lambda t: ir.VectorType(t, n)) if n else (lambda t: t)
    if F16C:
        return b.fpext(read(b, p, wrap(F16)), wrap(F32))
    return widen(b, b.zext(read(b, p, wrap(I16)), wrap(I32)))


def to_f16(b: Any, x: Any) -> Any:
    """f32 -> f16 bits as i16, vector or scalar."""
    if F16C:
        n = x.type.count if isinstance(x.type, ir.VectorType) else 0
        return b.bitcast(b.fptrunc(x, ir.VectorType(F16, n) if n else F16), ir.VectorType(I16, n) if n else I16)
    return narrow(b, x)


def store_f16(b: Any, p: Any, x: Any) -> None:
    write(b, p, to_f16(b, x))


def to_bf16(b: Any, x: Any) -> Any:
    """f32x8 -> bf16 bits as i16x8, to nearest even; NaN stays NaN."""
    wide = ir.VectorType(I32, x.type.count)
    k = lambda v: ir.Constant(wide, [v] * wide.count)  # noqa: E731
    bits = b.bitcast(x, wide)
    odd = b.and_(b.lshr(bits, k(16)), k(1))
    near = b.add(bits, b.add(odd, k(0x7FFF)))
    near = b.select(b.fcmp_unordered("uno", x, x), b.or_(bits, k(1 << 22)), near)
    return b.trunc(b.lshr(near, k(16)), ir.VectorType(I16, wide.count))


def load_bf16(b: Any, p: Any, n: int | None) -> Any:
    wide = ir.VectorType(I32, n) if n else I32
    x = b.zext(read(b, p, ir.VectorType(I16, n) if n else I16), wide)
    shift = ir.Constant(wide, [16] * n) if n else ir.Constant(wide, 16)
    return b.bitcast(b.shl(x, shift), ir.VectorType(F32, n) if n else F32)
