"""The kernel cache: content decides, a warm start compiles nothing, an edit is noticed, a bad folder does no harm."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from engine.kernels import jit

ROOT = Path(__file__).resolve().parents[3]
COMPILE = """
import json, sys
from engine.kernels.jit import compile_all
from engine.quants.f32 import unpack_row
seen = []
compile_all([unpack_row], lambda done, total, name: seen.append([done, total, name]))
print(json.dumps(seen))
"""


def run(code: str, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    """Python on the tree in `cwd`: the repository, or a copy of it."""
    full = {**os.environ, "PYTHONPATH": str(cwd), **env}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, env=full, timeout=120)


def test_the_second_start_compiles_nothing(tmp_path):
    first, second = (json.loads(run(COMPILE, COLIBRI_KERNEL_CACHE=str(tmp_path)).stdout) for _ in range(2))
    assert first == [[0, 1, ""], [1, 1, "f32.unpack_row"]]
    assert second == []


def test_a_folder_that_cannot_be_written_only_costs_the_cache(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    done = run(COMPILE, COLIBRI_KERNEL_CACHE=str(blocked / "kernels"))
    assert done.returncode == 0, done.stderr


def outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef):
            yield from outside_functions(child)


def test_imports_are_those_that_the_parser_sees():
    """A digest reads them with an expression, 30 times as fast; what it missed would be code that is not renewed."""
    for path in [*ROOT.glob("engine/kernels/*.py"), *ROOT.glob("engine/quants/*.py"), Path(__file__)]:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        seen = set()
        for node in outside_functions(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module:
                seen |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
            elif isinstance(node, ast.Import):
                seen |= {name.name for name in node.names}
        assert seen <= jit._imports(module), path


def test_a_digest_covers_what_a_kernel_calls_in_other_files():
    """Reproduced with numba alone: after an edit of a callee in another file the caller came stale from the cache."""
    closure = jit._closure("engine.kernels.gated")
    assert {"engine.kernels.gated", "engine.kernels.act", "engine.kernels.simd", "engine.kernels.isa"} <= closure
    assert "engine.quants.q4_1" not in closure, "one type's edit must not compile the others anew"
    assert jit.digest("engine.kernels.gated") != jit.digest("engine.kernels.norm")


SCRIPT = """
from engine.kernels.jit import _closure, digest
from engine.kernels.simd import ld_f32
print(digest("__main__"), "engine.kernels.simd" in _closure("__main__"))
"""


def test_kernels_of_a_script_are_renewed_with_what_it_imports(tmp_path):
    script = tmp_path / "script.py"
    digests = set()
    for more in ("", "# edited\n"):
        script.write_text(SCRIPT + more)
        done = subprocess.run(
            [sys.executable, script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        name, follows = done.stdout.split()
        digests.add(name)
        assert follows == "True"
    assert len(digests) == 2
