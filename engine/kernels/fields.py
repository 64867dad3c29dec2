"""Bit fields taken out of packed weights and scales, as LLVM IR of no particular CPU. Not here: products (dots.py).

Bytes are shifted as 16-bit lanes, which every CPU can; the mask that follows takes the neighbour's bits away.
"""

from typing import Any

from engine.kernels.vec import I8, I16, I32, const, i8x32, i16x16, i32x8, i64, ir, make, read, shuffle, splat


def _field(b: Any, v: Any, shift: Any, mask: Any) -> Any:
    wide = b.lshr(b.bitcast(v, i16x16.ir), splat(b, b.trunc(shift, I16), i16x16))
    return b.and_(b.bitcast(wide, i8x32.ir), splat(b, b.trunc(mask, I8), i8x32))


def _kept(b: Any, v: Any, shift: Any, mask: Any) -> Any:
    return b.and_(v, splat(b, b.trunc(b.shl(mask, shift), I8), i8x32))


def _bits(b: Any, v: Any, shift: Any, mask: Any) -> Any:
    return b.and_(b.lshr(v, splat(b, b.trunc(shift, I32), i32x8)), splat(b, b.trunc(mask, I32), i32x8))


def _six(b: Any, v: Any, k: Any) -> Any:
    by = splat(b, b.shl(b.trunc(k, I32), ir.Constant(I32, 3)), i32x8)
    return b.sub(b.and_(b.lshr(v, by), const(i32x8, 63)), const(i32x8, 32))


def _signed_byte(b: Any, v: Any, k: Any) -> Any:
    up = b.sub(ir.Constant(I32, 24), b.shl(b.trunc(k, I32), ir.Constant(I32, 3)))
    return b.ashr(b.shl(v, splat(b, up, i32x8)), const(i32x8, 24))


def _spread(b: Any, p: Any) -> Any:
    words = shuffle(b, b.bitcast(splat(b, read(b, p, I32), i32x8), i8x32.ir), [i // 8 for i in range(32)])
    one = ir.Constant(i8x32.ir, [1 << i % 8 if i % 8 < 7 else -128 for i in range(32)])
    return b.zext(b.icmp_unsigned("!=", b.and_(words, one), const(i8x32, 0)), i8x32.ir)


field = make(i8x32, (i8x32, i64, i64), _field)  # (v >> shift) & mask of each byte; shift + bits of mask <= 8
kept = make(i8x32, (i8x32, i64, i64), _kept)  # the same, not moved: v & (mask << shift)
up2 = make(i8x32, (i8x32,), lambda b, v: b.bitcast(b.shl(b.bitcast(v, i16x16.ir), const(i16x16, 2)), i8x32.ir))  # < 64
up4 = make(i8x32, (i8x32,), lambda b, v: b.bitcast(b.shl(b.bitcast(v, i16x16.ir), const(i16x16, 4)), i8x32.ir))  # < 16
bits = make(i32x8, (i32x8, i64, i64), _bits)  # (v >> shift) & mask of each word
six = make(i32x8, (i32x8, i64), _six)  # the low six bits of byte k of each word, less 32
signed_byte = make(i32x8, (i32x8, i64), _signed_byte)  # byte k of each word as a number
spread = make(i8x32, (i64,), _spread)  # the 32 bits at p as bytes 0 or 1
