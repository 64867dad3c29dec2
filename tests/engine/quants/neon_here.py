"""A pytest plugin: the level neon on this CPU, with sdot written out as it is defined. Not here: any test.

Everything that the level decides (weights stay signed, no bias, halves of vectors, conversions) is then what an ARM
runs; only the instruction itself is not. Loaded by test_levels.py with -p, before any kernel is imported.
"""

import hashlib
from pathlib import Path
from typing import Any

from engine.kernels import isa, vec
from engine.kernels.vec import I32, ir, shuffle

_HERE = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()  # part of the kernel cache's key
isa.ISA = isa.Isa("neon", isa.ISA.cpu, "a test", isa.ISA.target, isa.ISA.features | {_HERE})
_call = vec.call


def _sdot(b: Any, acc: Any, w: Any, x: Any) -> Any:
    """Each i32 lane of acc + the four signed products at its bytes (Arm's manual, SDOT (vector))."""
    wide = ir.VectorType(I32, 16)
    products = b.mul(b.sext(w, wide), b.sext(x, wide))
    for i in range(4):
        acc = b.add(acc, shuffle(b, products, [4 * lane + i for lane in range(4)]))
    return acc


def _instead(b: Any, name: str, ret: Any, values: Any) -> Any:
    if name == "llvm.aarch64.neon.sdot.v4i32.v16i8":
        return _sdot(b, *values)
    if name == "llvm.aarch64.neon.tbl1.v16i8":  # the same for bytes 0..15
        return _call(b, "llvm.x86.ssse3.pshuf.b.128", ret, values)
    return _call(b, name, ret, values)


vec.call = _instead
