"""The level follows from the CPU's features; what cannot be is refused in one sentence. CPUs as LLVM names them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import UsageError
from engine.kernels import isa
from engine.kernels.isa import Host, decide

ROOT = Path(__file__).resolve().parents[3]
SSE = {"sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16"}
AVX = SSE | {"avx"}
AVX2 = AVX | {"avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}
EVEX = AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
ARM8 = {"fp-armv8", "neon", "crc", "aes", "sha2"}
CPUS = {
    "core2": ("x86_64", {"sse", "sse2", "sse3", "ssse3", "cx16"}, None),
    "nehalem": ("x86_64", SSE, "v2"),
    "sandybridge": ("x86_64", AVX, "v2"),
    "znver3": ("x86_64", AVX2, "v3"),
    "skylake-avx512": ("x86_64", EVEX, "v3"),
    "alderlake": ("x86_64", AVX2 | {"avxvnni", "gfni"}, "vnni"),
    "znver4": ("x86_64", EVEX | {"avx512vnni", "avx512bf16"}, "avx512"),
    "sapphirerapids": ("x86_64", EVEX | {"avx512vnni", "avxvnni"}, "avx512"),
    # vnni announced by a hypervisor that hides the vector length extension
    "icelake-server": ("x86_64", AVX2 | {"avx512f", "avx512vnni"}, "v3"),
    "cortex-a72": ("aarch64", ARM8, None),
    "neoverse-n1": ("aarch64", ARM8 | {"lse", "dotprod"}, "neon"),
}


def host(name: str) -> Host:
    machine, features, _ = CPUS[name]
    return Host(machine, name, frozenset(features))


@pytest.mark.parametrize("name", [n for n, (_, _, level) in CPUS.items() if level])
def test_a_cpu_gets_the_best_level_it_can_run(name):
    chosen = decide(None, host(name))
    assert chosen.level == CPUS[name][2]
    assert chosen.cpu == name and chosen.reason.startswith("the CPU has ")
    assert set(isa.LEVELS[chosen.level].needs) <= host(name).features
    if chosen.level == "v2":
        assert not chosen.has("avx"), "half of AVX is not tested by anybody"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("core2", "this CPU (core2) lacks popcnt, sse4.1, sse4.2; x86-64-v2 (2009) or newer is needed"),
        ("cortex-a72", "this CPU (cortex-a72) lacks dotprod, lse; ARMv8.2 with the dot product (asimddp, 2017)"),
    ],
)
def test_a_cpu_that_is_too_old_is_told_what_it_lacks(name, words):
    with pytest.raises(UsageError) as told:
        decide(None, host(name))
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("name", "level", "words"),
    [
        ("znver4", "v9", "COLIBRI_ISA=v9 is not a level; use one of v2, v3, vnni, avx512, neon or leave it unset"),
        ("znver4", "vnni", "COLIBRI_ISA=vnni needs avxvnni, which this znver4 does not have"),
        ("alderlake", "avx512", "COLIBRI_ISA=avx512 needs avx512bw, avx512cd, avx512dq, avx512f, avx512vl, avx512vnni"),
        ("znver4", "neon", "COLIBRI_ISA=neon is for other CPUs; on x86_64 use avx512, vnni, v3, v2"),
        ("neoverse-n1", "v3", "COLIBRI_ISA=v3 is for other CPUs; on aarch64 use neon"),
        ("cortex-a72", "neon", "COLIBRI_ISA=neon needs dotprod, lse, which this cortex-a72 does not have"),
    ],
)
def test_a_level_that_cannot_be_forced_is_refused(name, level, words):
    with pytest.raises(UsageError) as told:
        decide(level, host(name))
    assert words in str(told.value)


def test_another_architecture_is_refused():
    with pytest.raises(UsageError, match="this machine is riscv64; Colibri's kernels run on x86-64 and on 64-bit ARM"):
        decide(None, Host("riscv64", "generic-rv64", frozenset()))


def test_a_forced_level_has_its_own_features_only():
    for level in ("v2", "v3", "avx512"):
        assert decide(level, host("znver4")).features == frozenset(isa.LEVELS[level].needs)


def test_numba_is_told_the_level_and_the_cache_keeps_levels_apart(tmp_path):
    code = (
        "from engine.kernels import isa, jit; from numba import config; import json; "
        "print(json.dumps([isa.ISA.level, config.CPU_NAME, config.CPU_FEATURES, jit.digest('engine.quants.q4_0')]))"
    )
    seen = {}
    for level in ("v2", "v3", ""):
        env = {**os.environ, "PYTHONPATH": str(ROOT), "COLIBRI_ISA": level, "COLIBRI_KERNEL_CACHE": str(tmp_path)}
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True).stdout
        seen[level] = json.loads(out)
    assert seen["v2"][:2] == ["v2", "x86-64-v2"] and "avx" not in seen["v2"][2]
    assert seen["v3"][:2] == ["v3", "x86-64-v3"] and "avx512" not in seen["v3"][2]
    assert len({digest for *_, digest in seen.values()}) == 3, "a level forced and the same level found are two codes"
