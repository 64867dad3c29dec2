"""Every kernel of every type equals its twin under the lower levels too, which this CPU runs as well as its own.

The twin tests run again in processes of their own, side by side. What they compile stays in the kernel cache: the first
time costs 40 s of a core for each level, later ones 5 s. Of types that share their instructions one runs under
v2 or under v3.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.kernels.isa import ISA
from engine.quants.registry import FOLDED, TYPES

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(ISA.is_arm, reason="v2 and v3 are levels of x86")
# The types whose dot products differ on ARM: weights without a sign, with one, with 6-bit values, and named ones.
ON_NEON = ["Q4_0", "Q8_0", "Q6_K", "IQ4_NL"]
GRIDS = ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M"]
NOT_UNDER = {
    "v2": ["Q2_K", "Q3_K", "IQ4_XS", "MXFP4", *FOLDED, *GRIDS],
    "v3": ["Q2_K", "IQ4_NL", "IQ4_XS", "TQ1_0", *FOLDED, *GRIDS[:4], *GRIDS[5:]],
}
RUNS = {
    "v2": ({"COLIBRI_ISA": "v2"}, [], f"twin and not ({' or '.join(NOT_UNDER['v2'])})"),
    "v3": ({"COLIBRI_ISA": "v3"}, [], f"twin and not ({' or '.join(NOT_UNDER['v3'])})"),
    "neon": ({}, ["-p", "tests.engine.quants.neon_here"], f"twin and ({' or '.join(ON_NEON)}) and (random or max)"),
}
EXPECTED = {level: (len(TYPES) + len(FOLDED) - len(out)) * 10 for level, out in NOT_UNDER.items()}
EXPECTED["neon"] = len(ON_NEON) * 4


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, "subprocess.Popen[str]"]]:
    begun = {}
    for name, (more, plugin, which) in RUNS.items():
        env = {**os.environ, "PYTHONPATH": str(ROOT), **more}
        words = ["-q", "-p", "no:cacheprovider", *plugin, "tests/engine/quants/test_kernels.py", "-k", which]
        begun[name] = subprocess.Popen(
            [sys.executable, "-m", "pytest", *words], cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE
        )
    yield begun
    for process in begun.values():
        process.kill()
        process.wait()


@pytest.mark.parametrize("level", RUNS)
def test_every_kernel_equals_its_twin(running, level):
    out, _ = running[level].communicate(timeout=400)
    assert running[level].returncode == 0, out[-3000:]
    passed = re.search(r"(\d+) passed", out)
    assert passed and int(passed[1]) == EXPECTED[level], "a level that tests nothing proves nothing"
