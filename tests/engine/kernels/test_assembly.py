"""Levels that this machine may not run: real kernels compiled for other CPUs, judged by their instructions."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.quants.registry import TYPES

ROOT = Path(__file__).resolve().parents[3]
PANELS = [f"{TYPES[kind].module}:panels" for kind in ("Q4_0", "Q8_0")]
SCORES, ACTIVATE = "engine.kernels.kv_q8_0:scores", "engine.kernels.act:activate"
DOTS = [*PANELS, SCORES]
TARGETS = {
    "v2": ["x86-64-v2"],
    "vnni": ["alderlake"],
    "avx512": ["cascadelake", "znver4"],
    "neon": ["neoverse-n1", "generic", "apple-m1"],
}
X86 = [(level, cpu) for level in ("v2", "vnni", "avx512") for cpu in TARGETS[level]]
ARM = [("neon", cpu) for cpu in TARGETS["neon"]]

Texts = dict[tuple[str, str, str], str]


@pytest.fixture(scope="module")
def texts() -> Iterator[Texts]:
    """(level, cpu, kernel) -> its assembly; each level is compiled in a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    tool = [sys.executable, "-m", "engine.kernels.assembly"]
    running = {
        level: subprocess.Popen(
            [*tool, level, ",".join(cpus), *DOTS, ACTIVATE], env=env, text=True, stdout=subprocess.PIPE
        )
        for level, cpus in TARGETS.items()
    }
    found: Texts = {}
    for level, process in running.items():
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0, f"{level} does not compile"
        for part in re.split(r"^# (?=\S+ engine)", out, flags=re.M)[1:]:
            head, text = part.split("\n", 1)
            cpu, kernel = head.split()
            found[level, cpu, kernel] = text
    yield found


def count(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text, re.M))


@pytest.mark.parametrize(("level", "cpu"), X86 + ARM)
def test_no_kernel_calls_a_library(texts, level, cpu):
    """fmaf or __truncsfhf2 stand for an instruction that was not there: slow, or not found and the process ends."""
    for kernel in [*DOTS, ACTIVATE]:
        called = set(re.findall(r"^\s+(?:callq?|bl|b)\s+(\w+)", texts[level, cpu, kernel], re.M))
        assert called  # the wrapper's own calls
        assert not {c for c in called if not re.match(r"_ZN|Py|_?numba_|NRT_|memset$", c)}


@pytest.mark.parametrize(("level", "cpu"), X86 + ARM)
def test_vectors_are_not_taken_apart(texts, level, cpu):
    """A lane moved to a general register or back is a vector operation that the CPU does not have."""
    lanes = r"\bv?p(?:insr|extr)[bwdq]\b|\b[us]mov\s|\bmov\s+v\d+\.[bhsd]\["
    for kernel in DOTS:
        assert count(lanes, texts[level, cpu, kernel]) == 0


def test_v2_keeps_within_sse4(texts):
    """An AVX instruction on an old CPU ends the process without a word."""
    for kernel in [*DOTS, ACTIVATE]:
        text = texts["v2", "x86-64-v2", kernel]
        assert count(r"%[yz]mm", text) == 0
        assert count(r"^\s+v[a-z0-9]+\s.*%xmm", text) == 0, "VEX forms, FMA and F16C among them"
        assert kernel == ACTIVATE or count(r"\bpmaddubsw\b", text) >= 16


def test_avx_vnni_uses_the_vex_form_and_sixteen_registers(texts):
    for kernel in DOTS:
        text = texts["vnni", "alderlake", kernel]
        assert count(r"\{vex\}\s+vpdpbusd\s.*%ymm", text) == count(r"\bvpdpbusd\b", text) >= 16
        assert count(r"%[xy]mm(?:1[6-9]|2\d|3[01])|%zmm|%k\d", text) == 0, "EVEX: not on this CPU"


@pytest.mark.parametrize("cpu", TARGETS["avx512"])
def test_avx512_takes_the_repeated_operand_from_memory_and_uses_32_registers(texts, cpu):
    for kernel in PANELS:
        assert count(r"\bvpdpbusd\s.*\{1to8\}, %ymm", texts["avx512", cpu, kernel]) >= 16
    scores = texts["avx512", cpu, SCORES]
    assert count(r"%ymm(?:1[6-9]|2\d|3[01])", scores) > 0
    for kernel in DOTS:
        assert count(r"\{vex\}", texts["avx512", cpu, kernel]) == 0
    for kernel in PANELS:
        assert count(r"\bvpdpbusd\b.*%zmm", texts["avx512", cpu, kernel]) >= 16, "two panels side by side"


@pytest.mark.parametrize(("level", "cpu"), ARM)
def test_neon_multiplies_with_the_dot_product(texts, level, cpu):
    for kernel in DOTS:
        text = texts[level, cpu, kernel]
        assert count(r"\bsdot\s", text) >= 32  # two for each vector of 32 bytes
        assert count(r"\bfcvtl\s", text) >= 1, "half scales by instruction"
        assert count(r"\bfml[as]", text) >= 2, "fused, as on x86"
        assert count(r"\b[us]mull2?\s+v|\bmul\s+v", text) == 0, "bytes multiplied otherwise"
    activate = texts[level, cpu, ACTIVATE]
    assert count(r"\bfcvtzs", activate) >= 2 and count(r"\bfrint[in]", activate) >= 2
