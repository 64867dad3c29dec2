"""Heavy packages load late: proven in a fresh interpreter, since this one has loaded everything already."""

import subprocess
import sys

import pytest

from engine.models.registry import ARCHITECTURES
from scripts.house import ROOT

HEAVY = ("numba", "llvmlite", "numpy", "aiohttp", "tokenizers", "jinja2", "textual", "docker", "pydantic")
NO_NUMBA = ("numba", "llvmlite")


def loaded(code: str, packages: tuple[str, ...]) -> set[str]:
    """Which of `packages` are in memory after `code` ran in a fresh interpreter."""
    tail = f"import sys; print('\\n' + ' '.join(m for m in {packages!r} if m in sys.modules))"
    argv = [sys.executable, "-c", f"{code}\n{tail}"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_help_loads_nothing_heavy() -> None:
    code = """
from appliance.cli.main import main
try:
    main(["--help"])
except SystemExit as stop:
    assert not stop.code, stop.code
"""
    assert loaded(code, HEAVY) == set()


@pytest.mark.parametrize(
    "module",
    [
        "appliance.api.app",
        "appliance.api.serve",
        "appliance.dispatch",
        "appliance.supervisor",
        "appliance.settings",
        "engine.planner",
        "engine.footprint",
        "engine.text",
        "engine.gguf.reader",
        "engine.models.shape",
        *sorted(set(ARCHITECTURES.values())),
        "engine.quants.registry",
    ],
)
def test_only_the_worker_loads_numba(module: str) -> None:
    assert loaded(f"import {module}", NO_NUMBA) == set()


def test_the_vocabulary_costs_no_encoder() -> None:
    """The worker only detokenises; the package that encodes costs tens of megabytes and is left until asked."""
    assert loaded("import engine.text", ("tokenizers",)) == set()
