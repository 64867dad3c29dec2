"""Sixteen bytes that nibbles name, as LLVM IR. Not here: which tables formats have (quants/), nibbles (dots.py)."""

from collections.abc import Sequence
from typing import Any

from engine.kernels.dots import AVX2, in_halves
from engine.kernels.isa import ISA
from engine.kernels.vec import call, i8x32, ir, make


def table(values: Sequence[int]) -> Any:
    """An intrinsic: 32 bytes 0..15 -> the values they name, each -128..255."""
    assert len(values) == 16
    both = ir.Constant(i8x32.ir, [(v + 128) % 256 - 128 for v in values] * 2)

    def emit(b: Any, v: Any) -> Any:
        if ISA.is_arm:
            return in_halves(b, "llvm.aarch64.neon.tbl1.v16i8", i8x32, [both, v])
        if AVX2:
            return call(b, "llvm.x86.avx2.pshuf.b", i8x32.ir, [both, v])
        return in_halves(b, "llvm.x86.ssse3.pshuf.b.128", i8x32, [both, v])

    return make(i8x32, (i8x32,), emit)
