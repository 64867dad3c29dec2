"""Vectors as numba types and how an intrinsic is made: LLVM IR in small words. Not here: any instruction (simd.py)."""

from collections.abc import Callable, Sequence
from typing import Any

import engine.kernels.isa  # noqa: F401  (sets the level before numba is imported)
from engine.kernels.regions import CHECKED

from llvmlite import ir  # isort: skip  (after the level is set)
from numba import types  # isort: skip
from numba.core import cgutils  # isort: skip
from numba.core.datamodel.models import PrimitiveModel  # isort: skip
from numba.extending import intrinsic, register_model  # isort: skip

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
F32, F16 = ir.FloatType(), ir.HalfType()
_IR = {"f32": F32, "f16": F16, "i8": I8, "i16": I16, "i32": I32, "i64": I64}


class Vec(types.Type):
    """`n` elements of `elt` in one register (or two, on SSE4)."""

    def __init__(self, elt: str, n: int) -> None:
        self.elt, self.n = elt, n
        super().__init__(name=f"Vec({elt}x{n})")

    @property
    def ir(self) -> ir.VectorType:
        return ir.VectorType(_IR[self.elt], self.n)


@register_model(Vec)
class _VecModel(PrimitiveModel):
    def __init__(self, manager: Any, vec: Vec) -> None:
        super().__init__(manager, vec, vec.ir)


f32x8, f16x8 = Vec("f32", 8), Vec("f16", 8)
i8x32, i8x16, i8x8 = Vec("i8", 32), Vec("i8", 16), Vec("i8", 8)
i16x16, i16x8, i32x8, i32x4 = Vec("i16", 16), Vec("i16", 8), Vec("i32", 8), Vec("i32", 4)
i64, i32, f32, void = types.int64, types.int32, types.float32, types.void


def make(ret: Any, args: Sequence[Any], emit: Callable[..., Any]) -> Any:
    """An intrinsic from emit(builder, *values); numba reads arities from names, hence the generated signature."""
    names = "".join(f", a{i}" for i in range(len(args)))
    space: dict[str, Any] = {}
    exec(f"def op(typingctx{names}):\n    return SIG, CG\n", space)
    signature = ret(*args)

    def codegen(context: Any, builder: Any, _sig: Any, values: Any) -> Any:
        out = emit(builder, *values)
        if isinstance(out, tuple):
            return context.make_tuple(builder, ret, out)
        return context.get_dummy_value() if out is None else out

    space["SIG"], space["CG"] = signature, codegen
    return intrinsic(space["op"])


def make_any(n_args: int, ret: Callable[..., Any], emit: Callable[..., Any]) -> Any:
    """The same for arguments of any type: ret(*their types) is the result's."""
    names = "".join(f", a{i}" for i in range(n_args))
    space: dict[str, Any] = {}

    def codegen(context: Any, builder: Any, _sig: Any, values: Any) -> Any:
        out = emit(builder, *values)
        return context.get_dummy_value() if out is None else out

    exec(f"def op(typingctx{names}):\n    return RET({names[2:]})({names[2:]}), CG\n", space)
    space["RET"], space["CG"] = ret, codegen
    return intrinsic(space["op"])


# --- IR in small words -------------------------------------------------------------------------------------------


def call(b: Any, name: str, ret: Any, values: Sequence[Any]) -> Any:
    kind = ir.FunctionType(ret, [v.type for v in values])
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), list(values))


def const(vt: Vec, x: Any) -> Any:
    return ir.Constant(vt.ir, [x] * vt.n)


def mask(index: Sequence[int]) -> Any:
    return ir.Constant(ir.VectorType(I32, len(index)), list(index))


def shuffle(b: Any, v: Any, index: Sequence[int], w: Any = None) -> Any:
    return b.shuffle_vector(v, ir.Constant(v.type, ir.Undefined) if w is None else w, mask(index))


def splat(b: Any, x: Any, vt: Vec) -> Any:
    return shuffle(b, b.insert_element(ir.Constant(vt.ir, ir.Undefined), x, ir.Constant(I32, 0)), [0] * vt.n)


def checked(b: Any, p: Any, n_bytes: int, is_write: bool) -> Any:
    """The address of an access of n_bytes: p itself; in the checked build what the check makes of it (checked.py)."""
    if not CHECKED:
        return p
    return call(b, "colibri_check", I64, [p, I64(n_bytes), I64(int(is_write))])


def _size(kind: Any) -> int:
    """Bytes of a scalar or vector type."""
    if isinstance(kind, ir.VectorType):
        return kind.count * _size(kind.element)
    return int(kind.width) // 8 if isinstance(kind, ir.IntType) else {"half": 2, "float": 4, "double": 8}[str(kind)]


def read(b: Any, p: Any, kind: Any) -> Any:
    return b.load(b.inttoptr(checked(b, p, _size(kind), False), kind.as_pointer()), align=1)


def write(b: Any, p: Any, value: Any) -> None:
    at = checked(b, p, _size(value.type), True)
    b.store(value, b.inttoptr(at, value.type.as_pointer()), align=1)
