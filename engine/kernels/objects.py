"""Machine code of one kernel: compiled by numba, kept in a file, linked into this process. Not here: which kernels.

    file    | "COLIBRI1" | SHA-256 of what follows | length of the JSON as u32 | JSON | ELF object |
    JSON    {"entry": symbol to call, "needs": [symbols that the process must have]}

numba's own cache costs 15 ms a kernel to read (it rebuilds its typing tables and parses a copy of the code as bitcode)
and breaks for good on a cut file. Linking the object alone takes 2 ms, and a file that is not whole is no file.
"""

import hashlib
import json
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from engine.kernels import isa  # the level is set before numba is imported

import llvmlite.binding as llvm  # isort: skip
from numba import types  # isort: skip

MAGIC = b"COLIBRI1"
assert isa.ISA


class Code:
    """An object file in memory; `address` links it on first use."""

    def __init__(self, entry: str, needs: list[str], code: bytes) -> None:
        self.entry, self.needs, self.code = entry, needs, code

    def to_bytes(self) -> bytes:
        head = json.dumps({"entry": self.entry, "needs": self.needs}).encode()
        body = struct.pack("<I", len(head)) + head + self.code
        return MAGIC + hashlib.sha256(body).digest() + body

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Code | None":
        """None for bytes that are not whole, or that call what this process does not have."""
        body = raw[40:]
        if raw[:8] != MAGIC or raw[8:40] != hashlib.sha256(body).digest():
            return None
        n = struct.unpack_from("<I", body)[0]
        head = json.loads(body[4 : 4 + n])
        _engine()
        if any(llvm.address_of_symbol(name) is None for name in head["needs"]):
            return None
        return cls(head["entry"], head["needs"], body[4 + n :])

    def link(self) -> int:
        """The address of the entry; the code stays for the life of the process."""
        engine = _engine()
        engine.add_object_file(llvm.ObjectFileRef.from_data(self.code))
        engine.finalize_object()
        return int(engine.get_function_address(self.entry))


def build(function: Callable[..., None], n_args: int) -> tuple[Code, int, Any]:
    """Compile; also the address of the code that numba has linked, and what keeps it there."""
    import numba

    built = numba.cfunc(types.void(*[types.int64] * n_args), nopython=True, error_model="numpy")(function)
    library = built._library
    needs = [f.name for f in library._final_module.functions if f.is_declaration and not f.name.startswith("llvm.")]
    code = Code(built._wrapper_name, needs, library._get_compiled_object())
    return code, int(built.address), built


def load(path: Path) -> Code | None:
    try:
        return Code.from_bytes(path.read_bytes())
    except OSError:
        return None


def save(path: Path, code: Code) -> bool:
    """Whole or not at all; False where the folder takes no files."""
    part = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.write_bytes(code.to_bytes())
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        return False
    return True


@cache
def _engine() -> Any:
    """LLVM's linker for this process, with the symbols that numba's wrappers call when a kernel raises."""
    from numba.core import base, config
    from numba.core.runtime import _nrt_python

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    base._load_global_helpers()
    for name, address in _nrt_python.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)
    arm = isa.ISA.is_arm
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        reloc="default" if arm else "static", codemodel="jitdefault", jit=True
    )
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine, use_lmm=config.USE_LLVMLITE_MEMORY_MANAGER)
