"""The assembly that kernels become at any level and for any CPU, also one that is not here. Not here: running it.

    python -m engine.kernels.assembly LEVEL CPU[,CPU...] MODULE:FUNCTION ...     prints it kernel by kernel, CPU by CPU

numba compiles as it would on the first CPU: its inliner, its passes; LLVM's back end then writes it for each. A process
serves one level, as an intrinsic reads the level when it is made.
"""

import importlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from engine.kernels import isa

TRIPLES = {False: "x86_64-unknown-linux-gnu", True: "aarch64-unknown-linux-gnu"}


def _machine(cpu: str) -> Any:
    """LLVM's back end for a CPU (LLVM's name) with the features of the level in force."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    features = ",".join(f"+{f}" for f in sorted(isa.ISA.features))
    target = llvm.Target.from_triple(TRIPLES[isa.ISA.is_arm])
    return target.create_target_machine(cpu=cpu, features=features, opt=3, reloc="static", codemodel="default")


def aim(level: str, cpu: str) -> None:
    """Have this process emit for `cpu` at `level`; call it before anything imports a kernel."""
    isa.ISA = isa.named(level, cpu)

    from numba.core.codegen import AOTCodeLibrary, AOTCPUCodegen
    from numba.core.registry import cpu_target

    class Library(AOTCodeLibrary):  # type: ignore[misc]
        def get_pointer_to_function(self, name: str) -> int:
            return 0  # numba asks; nothing will be called

    class Generator(AOTCPUCodegen):  # type: ignore[misc]
        _library_class = Library

        def _init(self, llvm_module: Any) -> None:
            super()._init(llvm_module)
            self._tm = _machine(cpu)
            self._target_data = self._tm.target_data
            self._data_layout = str(self._target_data)

        def _create_empty_module(self, name: str) -> Any:
            module = super()._create_empty_module(name)
            module.triple = TRIPLES[isa.ISA.is_arm]
            return module

        def set_env(self, name: str, env: Any) -> None:
            """Nothing will be called, so nothing needs its environment."""

    cpu_target.target_context._internal_codegen = Generator("colibri")


def assembly(name: str, cpus: Sequence[str]) -> Iterator[str]:
    """The assembly of the kernel or op "module:function" for each CPU, inlined helpers included."""
    from numba import types
    from numba.core import ccallback, compiler
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import cpu_target

    module, function = name.split(":")
    kernel = getattr(importlib.import_module(module), function)
    options = {"nopython": True, "error_model": "numpy"}
    build = ccallback._CFuncCompiler(kernel.function, cpu_target, options, {}, compiler.Compiler)
    with global_compiler_lock:
        library = build.compile((types.int64,) * kernel.n_args, types.void).library
        library._ensure_finalized()
    for cpu in cpus:
        yield str(_machine(cpu).emit_assembly(library._final_module))


def main(level: str, cpus: Sequence[str], names: Sequence[str]) -> None:
    aim(level, cpus[0])
    for name in names:
        for cpu, text in zip(cpus, assembly(name, cpus), strict=True):
            print(f"# {cpu} {name}\n{text}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2].split(","), sys.argv[3:])
