"""Five values 0..2 in a byte, as LLVM IR of no particular CPU. Not here: which byte holds which weight (quants/).

A byte b is a fraction of 256: times 3^n, what is left below 256 is a fraction again, and three times that has value n
above it: ((b * 3^n % 256) * 3) / 256. Products are of 16-bit lanes, the odd bytes of a vector above nothing.
"""

from typing import Any

from engine.kernels.vec import I16, I32, const, i8x16, i8x32, i16x16, i64, ir, make, read, shuffle, splat

_POWERS = 1 | 3 << 8 | 9 << 16 | 27 << 24 | 81 << 32
_LAST = ir.Constant(i16x16.ir, [81] * 8 + [1, 1, 3, 3, 9, 9, 27, 27])


def _high(b: Any, v: Any, times: int) -> Any:
    """The upper halves of 16-bit lanes times a number."""
    wide = ir.VectorType(I32, 16)
    product = b.mul(b.zext(v, wide), ir.Constant(wide, [times] * 16))
    return b.trunc(b.lshr(product, ir.Constant(wide, [16] * 16)), i16x16.ir)


def _trits(b: Any, v: Any, powers: Any) -> Any:
    v, above = b.bitcast(v, i16x16.ir), const(i16x16, -256)
    even = _high(b, b.mul(b.shl(v, const(i16x16, 8)), powers), 3)
    odd = _high(b, b.mul(b.and_(v, above), powers), 3 << 8)
    return b.bitcast(b.or_(even, b.and_(odd, above)), i8x32.ir)


def _power(b: Any, n: Any) -> Any:
    """3^n of n in 0..4."""
    return b.trunc(b.and_(b.lshr(ir.Constant(n.type, _POWERS), b.shl(n, ir.Constant(n.type, 3))), n.type(255)), I16)


def _pair(b: Any, m: Any, n: Any) -> Any:
    low, high = splat(b, _power(b, m), i16x16), splat(b, _power(b, n), i16x16)
    return shuffle(b, low, [*range(8), *range(16, 24)], high)


def _twenty(b: Any, p: Any) -> Any:
    four = b.bitcast(read(b, b.add(p, p.type(16)), I32), ir.VectorType(i8x32.ir.element, 4))
    return shuffle(b, read(b, p, i8x16.ir), range(32), shuffle(b, four, [0, 1, 2, 3] * 4))


thrice = make(i8x32, (i8x32,), lambda b, v: b.add(v, b.add(v, v)))  # bytes, what goes beyond 255 lost
trits = make(i8x32, (i8x32, i64), lambda b, v, n: _trits(b, v, splat(b, _power(b, n), i16x16)))  # value n of each byte
trits_of_16 = make(  # values m, then values n, of the 16 bytes at p
    i8x32, (i64, i64, i64),
    lambda b, p, m, n: _trits(b, shuffle(b, read(b, p, i8x16.ir), [*range(16)] * 2), _pair(b, m, n)),
)  # fmt: skip
trits_of_20 = make(  # values 4 of the 16 bytes at p, then 0, 1, 2, 3 of the four behind them
    i8x32, (i64,), lambda b, p: _trits(b, _twenty(b, p), _LAST)
)
