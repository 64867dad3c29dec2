"""Compiling in child processes: however the command ends, no compiler goes on, and the cache stays usable."""

import os
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


@pytest.mark.parametrize("end", ["nbc", "nbi"])
def test_a_cut_file_in_the_cache_is_made_anew(end: str, tmp_path: Path) -> None:
    """A full disk or a power loss leaves such files; numba alone fails on them at every start from then on."""
    load = "from engine.quants.f32 import unpack_row; print(unpack_row.address > 0)"
    cache = tmp_path / "cache"
    run(COMPILE, COLIBRI_KERNEL_CACHE=str(cache))
    cut = list(cache.rglob(f"*unpack_row*.{end}"))
    assert cut
    for path in cut:
        path.write_bytes(path.read_bytes()[: 40 if end == "nbc" else 0])
    done = run(load, COLIBRI_KERNEL_CACHE=str(cache))
    assert done.stdout == "True\n", done.stderr
    assert run(COMPILE, COLIBRI_KERNEL_CACHE=str(cache)).stdout.strip() == "[]"


def test_a_full_disk_only_costs_the_cache(tmp_path: Path) -> None:
    """A file may grow to 2 kB here: numba's first write fails as on a full disk."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); "
    code = limit + "from engine.quants.q4_1 import panels; print(panels.address > 0)"
    done = run(code, COLIBRI_KERNEL_CACHE=str(tmp_path / "cache"))
    assert done.stdout == "True\n", done.stderr
