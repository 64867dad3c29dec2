"""The decorators every kernel is made with, the cache they compile into and the warm-up. Not here: any kernel.

    @op       (op, tid, nth, step) -> nothing    one step of a program, called by address
    @kernel(n)   n int64 -> nothing              a loop that ops call by address, n arguments
    @inner       a helper that is compiled into its callers and never on its own

numba's cache does not notice an edited callee in another file (reproduced: stale results after an edit), so each
kernel's code lies in a folder named after the bytes of its module's import closure inside kernels/ and quants/, the
versions of numba and llvmlite and the CPU compiled for (objects.py has the files). A folder that cannot be read or
written only costs time. Float flags: none. Reassociation would break "same bits at every width", and the vector code
already says what it means.
"""

import hashlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable
from ctypes import CFUNCTYPE, c_int64
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from engine.errors import EngineFailed
from engine.kernels.isa import ISA
from engine.kernels.objects import Code, build, load, save
from engine.kernels.regions import CHECKED, Fault, publish, take_fault

import numba  # isort: skip  (after the level is set)
import llvmlite  # isort: skip
from numba import types  # isort: skip

_ROOT = Path(__file__).resolve().parent.parent
i64 = types.int64
_COMPILING = threading.Lock()
# Imports at the top of a file, also over several lines: numba sees no others. A line of prose that looks like one only
# makes a digest wider.
_IMPORT = re.compile(rb"^(?:from\s+([\w.]+)\s+import\s+(\([^)]*\)|[^\n]*)|import\s+([^\n]*))", re.M)


@cache
def _source(module: str) -> bytes:
    """The bytes of a module's file: of this project, else of wherever it runs from (a script); or nothing."""
    path = _ROOT.parent / (module.replace(".", "/") + ".py")
    if not path.exists():
        path = Path(getattr(sys.modules.get(module), "__file__", None) or path)
    return path.read_bytes() if path.is_file() and path.suffix == ".py" else b""


@cache
def _imports(module: str) -> frozenset[str]:
    """What `module` imports at its top, packages and possible submodules alike."""
    found: set[str] = set()
    for source, names, plain in _IMPORT.findall(_source(module)):
        words = re.findall(r"[\w.]+", (names or plain).decode())
        found |= {source.decode(), *(f"{source.decode()}.{word}" for word in words)} if source else set(words)
    return frozenset(found)


@cache
def _closure(module: str) -> frozenset[str]:
    """The modules of kernels/ and quants/ that `module` (which may be a test) imports, itself included."""
    seen: set[str] = set()
    todo = {module}
    while todo:
        name = todo.pop()
        inside = name == module or name.startswith(("engine.kernels.", "engine.quants."))
        if inside and name not in seen and _source(name):
            seen.add(name)
            todo |= _imports(name)
    return frozenset(seen)


@cache
def digest(module: str) -> str:
    """Hex digest of everything that decides the machine code of `module`'s kernels."""
    target = f"{ISA.level} {ISA.target} {sorted(ISA.features)}"
    made = f"{target} {'checked' if CHECKED else 'usual'}"
    h = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__} {made} {sys.version_info[:2]}".encode())
    for name in sorted(_closure(module) | _closure("engine.kernels.jit")):
        h.update(name.encode() + _source(name))
    return h.hexdigest()[:16]


def cache_root() -> Path:
    """COLIBRI_KERNEL_CACHE, else a folder in the user's cache; maybe neither there nor possible."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(os.environ.get("COLIBRI_KERNEL_CACHE") or os.path.join(home, "colibri", "kernels"))


RUNNERS = ("runner.run_job", "runner.serve")  # who calls them asks for the fault himself, as he knows the program


def outside(what: str, fault: Fault) -> str:
    """The sentence about an access that the checked build caught."""
    return f"{what} touched {fault.n_bytes} bytes at {fault.address:#x}, where nothing lives; please report this"


def _prepare() -> None:
    """Before anything is linked: what the code calls must have its address."""
    if CHECKED:
        from engine.kernels.checked import install

        install()


class Kernel:
    """A function that compiles when its address is first asked for; `address` is an int a program can hold."""

    def __init__(self, function: Callable[..., None], n_args: int) -> None:
        self.function, self.n_args = function, n_args
        self.name = f"{function.__module__.rsplit('.', 1)[-1]}.{function.__name__}"
        self._address = 0
        self._held: Any = None

    @cached_property
    def path(self) -> Path:
        """Where the cache has, or would have, this kernel's code."""
        module = self.function.__module__
        return cache_root() / f"{module.rsplit('.', 1)[-1]}-{digest(module)}" / f"{self.function.__name__}.o"

    @property
    def address(self) -> int:
        if not self._address:
            with _COMPILING:  # numba compiles for one thread at a time
                if not self._address and not self._is_linked():
                    code, self._address, self._held = build(self.function, self.n_args)
                    save(self.path, code)
        return self._address

    def is_linked(self) -> bool:
        """Whether the code is in this process, or was in the cache and is now."""
        with _COMPILING:
            return self._is_linked()

    def code(self) -> Code:
        """The code for another process to take, out of the cache or compiled."""
        _prepare()
        return load(self.path) or build(self.function, self.n_args)[0]

    def _is_linked(self) -> bool:
        _prepare()
        if not self._address and (code := load(self.path)) is not None:
            self._address = code.link()
        return bool(self._address)

    def take(self, code: Code) -> None:
        """Use and keep what another process compiled."""
        with _COMPILING:
            self._address = self._address or code.link()
        save(self.path, code)

    def __call__(self, *args: int) -> None:
        """Call from Python (tests, load time). The GIL is released, as for any foreign call."""
        assert len(args) == self.n_args, f"{self.name} takes {self.n_args} arguments, got {len(args)}"
        address = self.address
        publish()
        CFUNCTYPE(None, *[c_int64] * self.n_args)(address)(*args)
        if CHECKED and self.name not in RUNNERS and (fault := take_fault()):
            raise EngineFailed(outside(self.name, fault))


def op(function: Callable[..., None]) -> Kernel:
    """An op of a program: called as (address of its record, thread id, thread count, address of the step block)."""
    return Kernel(function, 4)


def kernel(n_args: int) -> Callable[[Callable[..., None]], Kernel]:
    """A loop with `n_args` int64 arguments, called by address from ops."""
    return lambda function: Kernel(function, n_args)


# The wrappers for callers from Python would cost a fifth of the compile time and nobody uses them.
inner = numba.njit(
    nogil=True, boundscheck=False, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
)


def compile_all(kernels: Iterable[Kernel], on_progress: Callable[[int, int, str], None]) -> None:
    """Compile what is missing, reporting (done, total, name) over the missing ones only; nothing when all are cached.

    Compiling happens in child processes: numba's compiler lock is per process, and a compiler leaves 100 MB behind.
    """
    every = list(dict.fromkeys(kernels))
    missing = [k for k in every if not k.is_linked()]
    if missing:
        from engine.kernels.warm import compile_missing

        compile_missing(missing, on_progress)
