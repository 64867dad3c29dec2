"""Bytes and the integer dot products, as LLVM IR. Not here: loads, float and i32 arithmetic (simd.py).

    dot_u4    eight vectors of weights 0..15        dot_u6    four vectors of weights 0..63
    dot_u5    eight vectors of weights 0..31        dot_i8    eight vectors of int8 weights, see OWED
    dot_row   one vector of weights 0..63           row_i8    one vector of int8 weights, see OWED
    dot_bytes, row_bytes      as dot_i8 and row_i8 of weights that are already what `byte` makes of them
    dot_i8_half               as dot_i8 of four vectors

All dot_ but dot_row take (start, vectors, p) and multiply each vector with four int8 at p, p + 4, ...; the others take
two vectors. Lane r of a result sums the four products at bytes 4r..4r+3 of each vector, added to the start. Exact at
every level.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from engine.kernels.isa import ISA
from engine.kernels.vec import (
    I1, I16, I32, Vec, call, cgutils, const, i8x16, i8x32, i16x16, i32x8, ir, make, make_any, read, shuffle,
    splat,
)  # fmt: skip

AVX2 = ISA.has("avx2")
FOUR = ISA.dots != "maddubs"  # one instruction sums four products in 32 bits
BIASED = ISA.dots == "dpbusd"  # and takes weights without a sign: dot_i8 adds 128 * sum(x)
IN_PLACE = BIASED  # weights may be fields of a byte that are not moved down: 0..255, and nothing saturates


def in_halves(b: Any, name: str, ret: Vec, values: Sequence[Any]) -> Any:
    """A 256-bit operation out of two 128-bit ones."""
    out = []
    for h in (0, 1):
        parts = [shuffle(b, v, range(h * v.type.count // 2, (h + 1) * v.type.count // 2)) for v in values]
        out.append(call(b, name, ir.VectorType(ret.ir.element, ret.n // 2), parts))
    return shuffle(b, out[0], range(ret.n), out[1])


lo4 = make(i8x32, (i8x32,), lambda b, v: b.and_(v, const(i8x32, 15)))
hi4 = make(i8x32, (i8x32,), lambda b, v: b.lshr(v, const(i8x32, 4)))
nibbles = make(  # 16 bytes -> 32 values: low nibbles, then high ones
    i8x32, (i8x16,),
    lambda b, v: shuffle(b, b.and_(v, const(i8x16, 15)), range(32), b.lshr(v, const(i8x16, 4))),
)  # fmt: skip
flip_sign = make(i8x32, (i8x32,), lambda b, v: b.xor(v, const(i8x32, -128)))  # int8 -> the same + 128, unsigned


def _neighbours(b: Any, x: Any, y: Any, ret: Vec) -> Any:
    """Products of the lanes of x and y, neighbours summed."""
    products = b.mul(x, y)
    even = range(0, 2 * ret.n, 2)
    return b.add(shuffle(b, products, even), shuffle(b, products, [i + 1 for i in even]))


def _maddubs(b: Any, u: Any, s: Any) -> Any:
    """u8 x i8, neighbours summed into i16; saturates, so the caller keeps every sum below 32768."""
    if ISA.is_arm:
        wide = ir.VectorType(I16, 32)
        return _neighbours(b, b.zext(u, wide), b.sext(s, wide), i16x16)
    if AVX2:
        return call(b, "llvm.x86.avx2.pmadd.ub.sw", i16x16.ir, [u, s])
    return in_halves(b, "llvm.x86.ssse3.pmadd.ub.sw.128", i16x16, [u, s])


def _maddwd(b: Any, x: Any, y: Any) -> Any:
    """i16 x i16, neighbours summed into i32."""
    if ISA.is_arm:
        wide = ir.VectorType(I32, 16)
        return _neighbours(b, b.sext(x, wide), b.sext(y, wide), i32x8)
    if AVX2:
        return call(b, "llvm.x86.avx2.pmadd.wd", i32x8.ir, [x, y])
    return in_halves(b, "llvm.x86.sse2.pmadd.wd", i32x8, [x, y])


def _dot4(b: Any, acc: Any, w: Any, x: Any) -> Any:
    """acc + four products per i32 lane, where FOUR. w is u8 on x86 and i8 on ARM: the same up to 127."""
    if ISA.is_arm:
        return in_halves(b, "llvm.aarch64.neon.sdot.v4i32.v16i8", i32x8, [acc, w, x])
    return call(b, f"llvm.x86.avx512.vpdpbusd.{32 * acc.type.count}", acc.type, [acc, w, x])


def _sign(b: Any, x: Any, w: Any) -> Any:
    """x with its sign turned where w is negative, 0 where w is 0. x86 only."""
    if AVX2:
        return call(b, "llvm.x86.avx2.psign.b", i8x32.ir, [x, w])
    return in_halves(b, "llvm.x86.ssse3.psign.b.128", i8x32, [x, w])


def _products(b: Any, start: Any, w: Sequence[Any], x: Sequence[Any], most: int) -> Any:
    """start + the products of unsigned w and x, pair by pair; `most` may be summed in 16 bits."""
    if FOUR:
        chains = [start, ir.Constant(start.type, None)][: len(w) // 4]  # one of eight would wait for each sum
        for j, (u, v) in enumerate(zip(w, x, strict=True)):
            chains[j % len(chains)] = _dot4(b, chains[j % len(chains)], u, v)
        return _tree(b, chains)
    t = [_maddubs(b, u, v) for u, v in zip(w, x, strict=True)]
    while most > 1 and len(t) > len(w) // most:
        t = [b.add(p, q) for p, q in zip(t[0::2], t[1::2], strict=True)]
    return b.add(start, _tree(b, [_maddwd(b, p, const(i16x16, 1)) for p in t]))


def _tree(b: Any, t: list[Any]) -> Any:
    while len(t) > 1:
        t = [b.add(p, q) for p, q in zip(t[0::2], t[1::2], strict=True)]
    return t[0]


def _fours(b: Any, p: Any, n: int, like: Any) -> list[Any]:
    """n times four bytes from p on, each repeated to the width of `like`."""
    lanes = Vec("i32", like.type.count // 4)
    at = (b.add(p, ir.Constant(p.type, 4 * j)) for j in range(n))
    return [b.bitcast(splat(b, read(b, a, I32), lanes), like.type) for a in at]


def _dot(n: int, most: int) -> Any:
    """(start, n weight vectors, p): start + their products with the 4 n int8 at p."""

    def emit(b: Any, start: Any, *v: Any) -> Any:
        return _products(b, start, v[:n], _fours(b, v[n], n, v[0]), most)

    return make_any(n + 2, lambda start, *_: start, emit)


def _dot_u4(b: Any, start: Any, w: Sequence[Any], x: Sequence[Any]) -> Any:
    return _products(b, start, w, x, 8)


dot_u4 = _dot(8, 8)  # 8 x 2 x 15 x 127 fits 16 bits
dot_u5 = _dot(8, 4)  # 4 x 2 x 31 x 127
dot_u6 = _dot(4, 2)  # 2 x 2 x 63 x 127


def _dot_i8(b: Any, start: Any, *v: Any, n: int = 8) -> Any:
    """BIASED: the weights go in as w + 128; ARM multiplies signs; else |w| and x with the sign of w: 2 x 128 x 127."""
    w, x = v[:n], _fours(b, v[n], n, v[0])
    if FOUR:
        return _products(b, start, [_unsigned(b, u) for u in w], x, 1)
    t = [_maddwd(b, _maddubs(b, _unsigned(b, u), _sign(b, y, u)), const(i16x16, 1)) for u, y in zip(w, x, strict=True)]
    return b.add(start, _tree(b, t))


def _dot_u8(b: Any, acc: Any, u: Any, x: Any, w: Any) -> Any:
    """acc + four products of int8 w and x per lane. BIASED: u = w + 128 and the caller takes 128 * sum(x) away; ARM
    multiplies signs; else u = |w| and the sign of w moves to x: 2 x 128 x 127 fits 16 bits."""
    if FOUR:
        return _dot4(b, acc, u if BIASED else w, x)
    return b.add(acc, _maddwd(b, _maddubs(b, u, _sign(b, x, w)), const(i16x16, 1)))


def _unsigned(b: Any, w: Any) -> Any:
    if BIASED:
        return b.xor(w, ir.Constant(w.type, [-128] * w.type.count))
    if FOUR:
        return w
    return b.call(
        cgutils.get_or_insert_function(b.module, ir.FunctionType(i8x32.ir, [i8x32.ir, I1]), "llvm.abs.v32i8"),
        [w, ir.Constant(I1, 0)],
    )


def _dot_bytes(b: Any, start: Any, *v: Any) -> Any:
    return _products(b, start, v[:8], _fours(b, v[8], 8, v[0]), 1) if FOUR else _dot_i8(b, start, *v)


def byte(weight: int) -> int:
    """An int8 weight as dot_bytes and row_bytes take it: moved up by 128 where the CPU wants no sign."""
    return weight + 128 if BIASED else weight


dot_i8 = make_any(10, lambda start, *_: start, _dot_i8)
dot_i8_half = make_any(6, lambda start, *_: start, partial(_dot_i8, n=4))
dot_bytes = make_any(10, lambda start, *_: start, _dot_bytes)


OWED = 7 if BIASED else -1  # what dot_i8 has too much is sum(x) << OWED, or nothing


def _dot_row(b: Any, w: Any, x: Any) -> Any:
    """Per i32 lane: four products of neighbouring w (0..63) and x."""
    if FOUR:
        return _dot4(b, const(i32x8, 0), w, x)
    return _maddwd(b, _maddubs(b, w, x), const(i16x16, 1))


dot_row = make(i32x8, (i8x32, i8x32), _dot_row)
row_i8 = make(i32x8, (i8x32, i8x32), lambda b, w, x: _dot_u8(b, const(i32x8, 0), _unsigned(b, w), x, w))
row_bytes = make(
    i32x8, (i8x32, i8x32), lambda b, w, x: _dot_u8(b, const(i32x8, 0), w if FOUR else _unsigned(b, w), x, w)
)
