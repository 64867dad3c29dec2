"""The kernel cache: content decides, a warm start compiles nothing, an edit is noticed, a bad folder does no harm."""

import json
import os
import subprocess
import sys
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


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    full = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=full, timeout=120)


def test_the_second_start_compiles_nothing(tmp_path):
    first, second = (json.loads(run(COMPILE, COLIBRI_KERNEL_CACHE=str(tmp_path)).stdout) for _ in range(2))
    assert first == [[0, 1, ""], [1, 1, "f32.unpack_row"]]
    assert second == []


def test_a_folder_that_cannot_be_written_only_costs_the_cache(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    done = run(COMPILE, COLIBRI_KERNEL_CACHE=str(blocked / "kernels"))
    assert done.returncode == 0, done.stderr


def test_a_digest_covers_what_a_kernel_calls_in_other_files():
    """Reproduced with numba alone: after an edit of a callee in another file the caller came stale from the cache."""
    closure = jit._closure("engine.kernels.gated")
    assert {"engine.kernels.gated", "engine.kernels.act", "engine.kernels.simd", "engine.kernels.isa"} <= closure
    assert "engine.quants.q4_1" not in closure, "one type's edit must not compile the others anew"
    assert jit.digest("engine.kernels.gated") != jit.digest("engine.kernels.norm")
