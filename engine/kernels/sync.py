"""Atomics, pauses, the futex and calls by address. Not here: the barrier made of them (runner.py)."""

from typing import Any

from engine.kernels.isa import ISA
from engine.kernels.vec import I32, I64, call, cgutils, checked, i64, ir, make, void

SYS_FUTEX = 98 if ISA.is_arm else 202
WAIT_PRIVATE, WAKE_PRIVATE = 128, 129
CLOCK_MONOTONIC = 1


def _at(b: Any, p: Any) -> Any:
    return b.inttoptr(checked(b, p, 8, True), I64.as_pointer())


def _pause(b: Any) -> None:
    if ISA.is_arm:
        call(b, "llvm.aarch64.hint", ir.VoidType(), [ir.Constant(I32, 1)])
    else:
        call(b, "llvm.x86.sse2.pause", ir.VoidType(), [])


def _syscall(b: Any, *values: Any) -> Any:
    function = cgutils.get_or_insert_function(b.module, ir.FunctionType(I64, [I64], var_arg=True), "syscall")
    return b.call(function, list(values))


def _clock(b: Any) -> Any:
    at = cgutils.alloca_once(b, ir.ArrayType(I64, 2))
    call(b, "clock_gettime", I32, [ir.Constant(I32, CLOCK_MONOTONIC), b.bitcast(at, I64.as_pointer())])
    seconds, ns = (b.load(cgutils.gep_inbounds(b, at, 0, i)) for i in (0, 1))
    return b.add(b.mul(seconds, ir.Constant(I64, 10**9)), ns)


def _store(b: Any, p: Any, v: Any) -> None:
    b.store_atomic(v, _at(b, p), "release", 8)


def _swap(b: Any, p: Any, old: Any, new: Any) -> Any:
    return b.extract_value(b.cmpxchg(_at(b, p), old, new, "seq_cst", "seq_cst"), 0)


def _invoke(n: int) -> Any:
    kind = ir.FunctionType(ir.VoidType(), [I64] * n)

    def emit(b: Any, address: Any, *values: Any) -> None:
        b.call(b.inttoptr(address, kind.as_pointer()), list(values))

    return make(void, (i64,) * (n + 1), emit)


atomic_load = make(i64, (i64,), lambda b, p: b.load_atomic(_at(b, p), "acquire", 8))
atomic_store = make(void, (i64, i64), _store)
atomic_add = make(i64, (i64, i64), lambda b, p, v: b.atomic_rmw("add", _at(b, p), v, "seq_cst"))  # -> the old value
atomic_swap = make(i64, (i64, i64, i64), _swap)  # (address, old, new) -> what was there; new is there if that is old
pause = make(void, (), _pause)
clock_ns = make(i64, (), _clock)  # 25 ns a call
futex = make(i64, (i64,) * 5, _syscall)  # (SYS_FUTEX, address, operation, value, timeout)
invoke_op = _invoke(4)  # (address, op record, thread id, thread count, step block)
invoke_matmul = _invoke(12)  # (address, the twelve arguments of a quant's `panels` or `rows`)
invoke_row = _invoke(3)  # (address, source, k, destination): a quant's `unpack_row`
invoke_put = _invoke(4)  # (address, the four arguments of a K or V type's `put_k` or `put_v`)
invoke_scores = _invoke(8)  # (address, the eight arguments of a K type's `scores` or a V type's `mix`)
