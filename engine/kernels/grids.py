"""Weights that stand eight or four together in a table, and their signs, as LLVM IR. Not here: the tables themselves.

A table is a constant of the machine code; an index is masked to its size, so no file reaches beyond it.
"""

from collections.abc import Sequence
from typing import Any

from engine.kernels.vec import I32, I64, cgutils, const, i8x32, i32x8, i64, ir, make, shuffle, splat, types


def grid(words: Sequence[int]) -> Any:
    """An intrinsic: index -> one of the 64-bit words, whose number is a power of two."""
    assert len(words) & (len(words) - 1) == 0
    kind = ir.ArrayType(I64, len(words))
    name = f"grid.{hash(tuple(words)) & (1 << 60) - 1:x}"

    def emit(b: Any, index: Any) -> Any:
        held = b.module.globals.get(name)
        if held is None:
            held = cgutils.global_constant(b.module, name, ir.Constant(kind, list(words)))
        at = b.and_(index, I64(len(words) - 1))
        return b.load(b.gep(held, [I64(0), at], inbounds=True))

    return make(i64, (i64,), emit)


def _joined(b: Any, values: Sequence[Any], kind: Any) -> Any:
    v = ir.Constant(ir.VectorType(kind, len(values)), ir.Undefined)
    for i, value in enumerate(values):
        v = b.insert_element(v, b.trunc(value, kind) if kind is I32 else value, ir.Constant(I32, i))
    return b.bitcast(v, i8x32.ir)


def _are_set(b: Any, word: Any) -> Any:
    """32 bits -> 32 bytes, all ones where the bit is set."""
    spread = shuffle(b, b.bitcast(splat(b, b.trunc(word, I32), i32x8), i8x32.ir), [i // 8 for i in range(32)])
    one = ir.Constant(i8x32.ir, [1 << i % 8 if i % 8 < 7 else -128 for i in range(32)])
    return b.sext(b.icmp_unsigned("!=", b.and_(spread, one), const(i8x32, 0)), i8x32.ir)


def _signed(b: Any, v: Any, word: Any) -> Any:
    minus = _are_set(b, word)
    return b.sub(b.xor(v, minus), minus)


def _turned(b: Any, *rows: Any) -> tuple[Any, ...]:
    v = [b.bitcast(row, i32x8.ir) for row in rows]
    for width in (1, 2, 4):
        keep = [i if i & width == 0 else 8 + (i ^ width) for i in range(8)]
        move = [(i | width) if i & width == 0 else 8 + i for i in range(8)]
        for r in range(8):
            if r & width == 0:
                x, y = v[r], v[r + width]
                v[r], v[r + width] = shuffle(b, x, keep, y), shuffle(b, x, move, y)
    return tuple(b.bitcast(x, i8x32.ir) for x in v)


four_words = make(i8x32, (i64,) * 4, lambda b, *w: _joined(b, w, I64))
eight_words = make(i8x32, (i64,) * 8, lambda b, *w: _joined(b, w, I32))  # the low halves
signed = make(i8x32, (i8x32, i64), _signed)  # byte i turned to -byte where bit i of the word is set
above = make(  # byte i one more, one less where bit i of the word is set
    i8x32, (i8x32, i64), lambda b, v, word: b.add(v, b.or_(_are_set(b, word), const(i8x32, 1)))
)
turned = make(types.UniTuple(i8x32, 8), (i8x32,) * 8, _turned)  # eight rows of 32 -> eight groups of four columns
