"""Compiling in child processes: however the command ends, no compiler goes on, and the cache stays usable."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.engine.kernels.test_jit import COMPILE, ROOT, run

TWO = """
from engine.kernels.jit import compile_all
from engine.quants.q4_0 import panels as a
from engine.quants.q8_0 import panels as b
compile_all([a, b], lambda done, total, name: print(done, total, name, flush=True))
"""


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def within(seconds: float, holds: "object") -> bool:
    """Whether `holds()` comes true; the limit is a guard against hanging."""
    until = time.monotonic() + seconds
    while not (found := bool(holds())) and time.monotonic() < until:  # type: ignore[operator]
        time.sleep(0.02)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_compiler_outlives_the_command_it_worked_for(number: signal.Signals, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLIBRI_KERNEL_CACHE": str(tmp_path)}
    command = subprocess.Popen([sys.executable, "-c", TWO], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert within(60, lambda: children(command.pid)), "no compiler was started"
        time.sleep(0.5)  # into the children's imports: a child that has not begun is the easy case
        compilers = children(command.pid)
        assert compilers
        command.send_signal(number)
        command.communicate(timeout=30)
        assert within(10, lambda: not any(map(is_running, compilers)))
    finally:
        command.kill()
        command.communicate()
    done = run(COMPILE, COLIBRI_KERNEL_CACHE=str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_two_commands_may_fill_one_empty_cache_at_once(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLIBRI_KERNEL_CACHE": str(tmp_path)}
    both = [subprocess.Popen([sys.executable, "-c", COMPILE], env=env, stderr=subprocess.PIPE) for _ in range(2)]
    for command in both:
        _, err = command.communicate(timeout=120)
        assert command.returncode == 0, err
    assert run(COMPILE, COLIBRI_KERNEL_CACHE=str(tmp_path)).stdout.strip() == "[]"


def test_a_cut_or_damaged_file_in_the_cache_is_made_anew(tmp_path: Path) -> None:
    """A full disk or a power loss leaves such files; what they hold must not be run, and must not stay."""
    cache = tmp_path / "cache"
    run(COMPILE, COLIBRI_KERNEL_CACHE=str(cache))
    (path,) = cache.rglob("unpack_row.o")
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-100] ^= 1
    load = "from engine.quants.f32 import unpack_row as u; print(u.is_linked(), u.address > 0, u.is_linked())"
    for damaged in (b"", whole[:30], whole[:-1], bytes(flipped)):
        path.write_bytes(damaged)
        done = run(load, COLIBRI_KERNEL_CACHE=str(cache))
        assert done.stdout == "False True True\n", done.stderr
    assert run(COMPILE, COLIBRI_KERNEL_CACHE=str(cache)).stdout.strip() == "[]"


def test_a_full_disk_only_costs_the_cache(tmp_path: Path) -> None:
    """A file may grow to 1 kB here: the write fails as on a full disk, and nothing half-written stays."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); "
    code = limit + "from engine.quants.q8_0 import unpack_row as u; print(u.address > 0)"
    done = run(code, COLIBRI_KERNEL_CACHE=str(tmp_path / "cache"))
    assert done.stdout == "True\n", done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


POWERLESS = """
import ctypes, os
nothing = (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), nothing) == 0
"""


def test_a_folder_that_cannot_be_written_is_still_read(tmp_path: Path) -> None:
    """An image may bring compiled kernels in a layer of its own: they are used, and what is missing is compiled."""
    cache = tmp_path / "cache"
    assert run(COMPILE, COLIBRI_KERNEL_CACHE=str(cache)).returncode == 0
    for path in (cache, *cache.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = sorted(cache.rglob("*"))
    more = (
        "from engine.quants.f16 import unpack_row as other\n"
        "print(other.is_linked(), other.address > 0, os.access(other.path.parent.parent, os.W_OK))"
    )
    done = run(POWERLESS + COMPILE + more, COLIBRI_KERNEL_CACHE=str(cache))  # root could write all the same
    assert done.stdout == "[]\nFalse True False\n", done.stdout + done.stderr
    assert sorted(cache.rglob("*")) == before


HELPER = "from engine.kernels.jit import inner\n\n@inner\ndef helped(x):\n    return x * {factor}\n"
USER = """
from engine.kernels.jit import kernel
from engine.kernels.simd import st_i64
{helper}

@kernel(1)
def answer(out):
    st_i64(out, helped(21))
"""
ANSWERS = """
import ctypes
from engine.kernels import edit_user, edit_other
for kernel in (edit_user.answer, edit_other.answer):
    out = ctypes.c_int64()
    was_there = kernel.is_linked()
    kernel(ctypes.addressof(out))
    print(was_there, out.value)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the engine that may be edited."""
    shutil.copytree(ROOT / "engine", tmp_path / "tree/engine", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "tree/engine/kernels"


def test_an_edit_compiles_anew_what_depends_on_it_and_nothing_else(tree: Path, tmp_path: Path) -> None:
    """numba's own cache goes on calling the old code when a helper in another file changes (reproduced)."""

    def answers() -> list[str]:
        # Python's own bytecode would outlive an edit of the same length in the same second.
        cache = {"COLIBRI_KERNEL_CACHE": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = run(ANSWERS, cwd=tree.parent.parent, **cache)
        return done.stdout.splitlines() or [done.stderr]

    (tree / "edit_helper.py").write_text(HELPER.format(factor=2))
    (tree / "edit_user.py").write_text(USER.format(helper="from engine.kernels.edit_helper import helped"))
    (tree / "edit_other.py").write_text(USER.format(helper="\nhelped = int"))
    assert answers() == ["False 42", "False 21"]
    (tree / "edit_helper.py").touch()
    assert answers() == ["True 42", "True 21"], "bytes count, not times"
    (tree / "edit_helper.py").write_text(HELPER.format(factor=3))
    assert answers() == ["False 63", "True 21"]
    (tree / "edit_helper.py").write_text(HELPER.format(factor=2))
    assert answers() == ["True 42", "True 21"], "the old code is still there"


DIGESTS = """
import json
from pathlib import Path
from engine.kernels import jit

def digests():
    for made in (jit._source, jit._imports, jit._closure, jit.digest):
        made.cache_clear()
    paths = [*Path("engine").glob("kernels/*.py"), *Path("engine").glob("quants/*.py")]
    return {path.stem: jit.digest(f"engine.{path.parent.name}.{path.stem}") for path in paths}

before, changed = digests(), {}
for name in EDITED:
    path = Path("engine") / name
    text = path.read_text()
    path.write_text(text + "# a word more")
    changed[name] = [stem for stem, digest in digests().items() if digest != before[stem]]
    path.write_text(text)
print(json.dumps(changed))
"""
ALL_OPS = {"q4_0", "f32", "attention", "sample"}
EDITED = {  # what of the tree must be compiled anew, what must not
    "quants/q4_1.py": ({"q4_1"}, ALL_OPS),
    "kernels/rope.py": ({"rope"}, {"q4_0", "sample"}),
    "kernels/vec.py": (ALL_OPS, set()),
    "kernels/isa.py": (ALL_OPS, set()),
    "kernels/objects.py": (ALL_OPS, set()),
}


def test_any_edit_of_a_source_is_noticed(tree: Path) -> None:
    done = run(f"EDITED = {list(EDITED)}\n{DIGESTS}", cwd=tree.parent.parent)
    assert done.returncode == 0, done.stderr
    for name, changed in json.loads(done.stdout).items():
        must, spared = EDITED[name]
        assert must <= set(changed) and not spared & set(changed), name
