"""Which instructions the kernels may use on this CPU, decided before numba is imported. Not here: the instructions.

    v2       SSE4.2 (2009)                    maddubs and maddwd on two halves; halves of floats by integers; no FMA
    v3       AVX2, FMA, F16C (2013)           maddubs and maddwd
    vnni     v3 and AVX-VNNI                  vpdpbusd, VEX: sixteen registers
    avx512   v3 and AVX-512 VNNI on 256 bits  vpdpbusd, EVEX: 32 registers, a repeated operand straight from memory
    neon     ARMv8 with the dot product       sdot on two halves

COLIBRI_ISA forces a level; without it the CPU's own features decide. A forced level sets numba's CPU name *and* its
features: the name alone leaves AVX2 on (measured). Every other kernel file imports this one first, and emission reads
ISA: a program that only wants assembly puts another level there before it imports a kernel (assembly.py).

Integers are exact at every level. Float chains have the same bits at all but v2, which has no fused multiply-add.
"""

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from engine.errors import UsageError

# Feature strings in LLVM's spelling.
_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_VNNI = (*_V3, "avxvnni")
_AVX512 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vnni")
_NEON = ("fp-armv8", "neon", "dotprod", "lse")
# What /proc/cpuinfo calls them: the kernel tells them of any CPU, LLVM only of those it knows by name.
_CPUINFO = {"fp": "fp-armv8", "asimd": "neon", "asimddp": "dotprod", "atomics": "lse"}


@dataclass(frozen=True)
class Level:
    """What a level needs, under which CPU name LLVM tunes for it when it is forced, and why a CPU gets it."""

    cpu: str
    needs: tuple[str, ...]
    reason: str


# Each architecture's levels, the best first. alderlake as a name would bring features along that the CPU may lack.
X86 = {
    "avx512": Level("x86-64-v4", _AVX512, "the CPU has AVX-512 VNNI"),
    "vnni": Level("x86-64-v3", _VNNI, "the CPU has AVX-VNNI"),
    "v3": Level("x86-64-v3", _V3, "the CPU has AVX2 and FMA, but no VNNI"),
    "v2": Level("x86-64-v2", _V2, "the CPU has SSE4.2, but not all of AVX2, FMA and F16C"),
}
ARM = {"neon": Level("generic", _NEON, "the CPU has the NEON dot product")}
LEVELS = {**dict(reversed(X86.items())), **ARM}


@dataclass(frozen=True)
class Host:
    """A machine as platform.machine() and LLVM name it."""

    machine: str
    cpu: str
    features: frozenset[str]

    @property
    def is_arm(self) -> bool:
        return self.machine == "aarch64"


@dataclass(frozen=True)
class Isa:
    """The level in force, the CPU's name and why; `target` and `features` are LLVM's names of what is compiled for."""

    level: str
    cpu: str
    reason: str
    target: str
    features: frozenset[str]

    @property
    def words(self) -> str:
        """The boot line: which CPU, which level, why."""
        return f"CPU {self.cpu}, kernels {self.level}: {self.reason}"

    def has(self, feature: str) -> bool:
        return feature in self.features

    @property
    def is_arm(self) -> bool:
        return self.level in ARM

    @property
    def fma(self) -> bool:
        return self.has("fma") or self.is_arm

    @property
    def converts_halves(self) -> bool:
        """Whether an instruction turns eight f16 into f32 and back."""
        return self.has("f16c") or self.is_arm

    @property
    def dots(self) -> str:
        """How bytes are multiplied and summed: "maddubs" two in 16 bits, "dpbusd" or "sdot" four in 32."""
        return "sdot" if self.is_arm else "dpbusd" if self.level in ("vnni", "avx512") else "maddubs"


def _host() -> Host:
    import llvmlite.binding as llvm

    features = {name for name, on in llvm.get_host_cpu_features().items() if on}
    machine = platform.machine()
    if machine == "aarch64":
        words = Path("/proc/cpuinfo").read_text(errors="replace").split()
        features |= {name for word, name in _CPUINFO.items() if word in words}
    return Host(machine, llvm.get_host_cpu_name(), frozenset(features))


def named(level: str, cpu: str = "", reason: str = "COLIBRI_ISA says so") -> Isa:
    """A level as forced: its own features and nothing else."""
    of = LEVELS[level]
    return Isa(level, cpu or of.cpu, reason, of.cpu, frozenset(of.needs))


def decide(forced: str | None = None, host: Host | None = None) -> Isa:
    """Pick the level for a host; raises UsageError when a forced level is unknown or the CPU lacks it."""
    host = host or _host()
    if forced and forced not in LEVELS:
        raise UsageError(f"COLIBRI_ISA={forced} is not a level; use one of {', '.join(LEVELS)} or leave it unset")
    if not host.is_arm and host.machine not in ("x86_64", "AMD64"):
        raise UsageError(f"this machine is {host.machine}; Colibri's kernels run on x86-64 and on 64-bit ARM")
    here = ARM if host.is_arm else X86
    if forced:
        if forced not in here:
            raise UsageError(f"COLIBRI_ISA={forced} is for other CPUs; on {host.machine} use {', '.join(here)}")
        lacking = set(LEVELS[forced].needs) - host.features
        if lacking:
            raise UsageError(
                f"COLIBRI_ISA={forced} needs {', '.join(sorted(lacking))}, which this {host.cpu} does not have"
            )
        return named(forced, host.cpu)
    level = next((name for name, of in here.items() if set(of.needs) <= host.features), None)
    if level is None:
        least = here["neon" if host.is_arm else "v2"]
        oldest = "ARMv8.2 with the dot product (asimddp, 2017)" if host.is_arm else "x86-64-v2 (2009)"
        lacking = ", ".join(sorted(set(least.needs) - host.features))
        raise UsageError(f"this CPU ({host.cpu}) lacks {lacking}; {oldest} or newer is needed")
    # v2: the AVX of a CPU without AVX2 would be neither tested nor faster. neon: a virtual machine may hide what the
    # CPU's name promises. Both are compiled for the level's features alone.
    if level in ("v2", "neon"):
        return named(level, host.cpu, here[level].reason)
    return Isa(level, host.cpu, here[level].reason, host.cpu, host.features)


def apply(isa: Isa) -> None:
    """Tell numba the level, before its first kernel is compiled; by itself it takes the host's name and features."""
    if isa.target == isa.cpu:
        return
    os.environ["NUMBA_CPU_NAME"] = isa.target
    os.environ["NUMBA_CPU_FEATURES"] = ",".join(f"+{f}" for f in sorted(isa.features))
    config = sys.modules.get("numba.core.config")
    if config is not None:  # numba came first: it has read its environment already
        config.CPU_NAME = isa.target  # type: ignore[attr-defined]
        config.CPU_FEATURES = os.environ["NUMBA_CPU_FEATURES"]  # type: ignore[attr-defined]


ISA = decide(os.environ.get("COLIBRI_ISA") or None)
apply(ISA)
