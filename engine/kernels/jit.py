"""The decorators every kernel is made with, the cache they compile into and the warm-up. Not here: any kernel.

    @op       (op, tid, nth, step) -> nothing    one step of a program, called by address
    @kernel(n)   n int64 -> nothing              a loop that ops call by address, n arguments
    @inner       a helper that is compiled into its callers and never on its own

numba's cache does not notice an edited callee in another file (reproduced: stale results after an edit), so each
module compiles into a folder named after the bytes of its import closure inside kernels/ and quants/, the versions of
numba and llvmlite and the ISA level. Float flags: none. Reassociation would break "same bits at every width", and the
vector code already says what it means.
"""

import ast
import hashlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from engine.errors import EngineFailed
from engine.kernels.isa import ISA
from engine.kernels.regions import CHECKED, Fault, publish, take_fault

import numba  # isort: skip  (after the level is set)
import llvmlite  # isort: skip
from numba import types  # isort: skip

_ROOT = Path(__file__).resolve().parent.parent
i64 = types.int64
_COMPILING = threading.Lock()
# What numba raises when it reads a cache file that was cut by a full disk or a lost power supply.
_CUT = (EOFError, UnpicklingError)


@cache
def _source(module: str) -> bytes:
    """The bytes of a module's file, nothing for a module without one here."""
    path = _ROOT.parent / (module.replace(".", "/") + ".py")
    return path.read_bytes() if path.exists() else b""


@cache
def _imports(module: str) -> frozenset[str]:
    """What `module` imports, packages and possible submodules alike."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(_source(module))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
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
    build = f"{target} {'checked' if CHECKED else 'usual'}"
    h = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__} {build} {sys.version_info[:2]}".encode())
    for name in sorted(_closure(module) | {"engine.kernels.jit"}):
        h.update(name.encode() + _source(name))
    return h.hexdigest()[:16]


@cache
def cache_root() -> Path:
    """COLIBRI_KERNEL_CACHE, else the user's cache folder, else a private temporary one; created mode 700."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    wanted = Path(os.environ.get("COLIBRI_KERNEL_CACHE") or os.path.join(home, "colibri", "kernels"))
    try:
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = wanted / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
        return wanted
    except OSError:
        return Path(tempfile.mkdtemp(prefix="colibri-kernels-"))


def _folder(module: str) -> str:
    folder = cache_root() / f"{module.rsplit('.', 1)[-1]}-{digest(module)}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(folder)


RUNNERS = ("runner.run_job", "runner.serve")  # who calls them asks for the fault himself, as he knows the program


def outside(what: str, fault: Fault) -> str:
    """The sentence about an access that the checked build caught."""
    return f"{what} touched {fault.n_bytes} bytes at {fault.address:#x}, where nothing lives; please report this"


class Kernel:
    """A function that compiles when its address is first asked for; `address` is an int a program can hold."""

    def __init__(self, function: Callable[..., None], n_args: int) -> None:
        self.function, self.n_args = function, n_args
        self.name = f"{function.__module__.rsplit('.', 1)[-1]}.{function.__name__}"
        self._compiled: Any = None

    @property
    def address(self) -> int:
        if self._compiled is None:
            with _COMPILING:  # two threads at once: one's code would be freed under the other's feet
                if self._compiled is None:
                    self._compiled = self._compile()
        return int(self._compiled.address)

    def _compile(self) -> Any:
        """From the cache, or into it; a cut file in it is removed, a full disk only costs time."""
        if CHECKED:
            from engine.kernels.checked import install

            install()
        try:
            return self._build(cached=True)
        except _CUT:
            self._forget()
        except OSError:
            return self._build(cached=False)
        try:
            return self._build(cached=True)
        except OSError:
            return self._build(cached=False)

    def _build(self, cached: bool) -> Any:
        if cached:
            numba.config.CACHE_DIR = _folder(self.function.__module__)
        signature = types.void(*[i64] * self.n_args)
        return numba.cfunc(signature, cache=cached, nopython=True, error_model="numpy")(self.function)

    def _files(self) -> list[Path]:
        """The cached code of this kernel and its index."""
        module = self.function.__module__
        folder = cache_root() / f"{module.rsplit('.', 1)[-1]}-{digest(module)}"
        return list(folder.rglob(f"*{self.function.__name__}-*.nb[ci]"))

    def _forget(self) -> None:
        for path in self._files():
            path.unlink(missing_ok=True)

    def __call__(self, *args: int) -> None:
        """Call from Python (tests, load time). The GIL is released, as for any foreign call."""
        assert len(args) == self.n_args, f"{self.name} takes {self.n_args} arguments, got {len(args)}"
        _ = self.address
        publish()
        self._compiled.ctypes(*args)
        if CHECKED and self.name not in RUNNERS and (fault := take_fault()):
            raise EngineFailed(outside(self.name, fault))

    @property
    def is_cached(self) -> bool:
        return any(path.suffix == ".nbc" for path in self._files())


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
    missing = [k for k in every if not k.is_cached]
    if missing:
        from engine.kernels.warm import compile_missing

        compile_missing(missing, on_progress)
    for k in every:
        _ = k.address
