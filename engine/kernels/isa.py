"""Which instructions the kernels may use on this CPU, decided before numba is imported. Not here: the instructions.

COLIBRI_ISA forces a lower level (v2, v3, vnni); without it the CPU's own features decide. A level sets numba's CPU
name *and* its features: the name alone leaves AVX2 on (measured). Every other kernel file imports this one first.

Bits are the same at v3 and vnni. v2 has no fused multiply-add, so its last bits differ from the others'.
"""

import os
import platform
import sys
from dataclasses import dataclass

from engine.errors import UsageError

# Feature strings in LLVM's spelling; each level contains the one before it.
_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_VNNI = (*_V3, "avxvnni")
LEVELS = {"v2": ("x86-64-v2", _V2), "v3": ("x86-64-v3", _V3), "vnni": ("alderlake", _VNNI)}


@dataclass(frozen=True)
class Isa:
    """The level in force, the CPU's name and why; `features` are LLVM's names."""

    level: str
    cpu: str
    reason: str
    features: frozenset[str]

    def has(self, feature: str) -> bool:
        return feature in self.features

    @property
    def fma(self) -> bool:
        return self.has("fma") or platform.machine() == "aarch64"

    @property
    def vnni(self) -> bool:
        return self.level == "vnni"


def _host() -> tuple[str, frozenset[str]]:
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), frozenset(k for k, on in llvm.get_host_cpu_features().items() if on)


def decide(forced: str | None = None) -> Isa:
    """Pick the level for this host; raises UsageError when a forced level is unknown or the CPU lacks it."""
    cpu, host = _host()
    evex_vnni = {"avx512vnni", "avx512vl"} <= host
    vnni_here = set(_V3) <= host and ("avxvnni" in host or evex_vnni)
    if forced:
        if forced not in LEVELS:
            raise UsageError(f"COLIBRI_ISA={forced} is not a level; use one of {', '.join(LEVELS)} or leave it unset")
        lacking = set(LEVELS[forced][1]) - host - ({"avxvnni"} if vnni_here else set())
        if lacking:
            raise UsageError(f"COLIBRI_ISA={forced} needs {', '.join(sorted(lacking))}, which this {cpu} does not have")
        features = set(LEVELS[forced][1])
        if forced == "vnni" and "avxvnni" not in host:
            features = features - {"avxvnni"} | {"avx512f", "avx512vl", "avx512vnni"}
        return Isa(forced, cpu, "COLIBRI_ISA", frozenset(features))
    if platform.machine() not in ("x86_64", "AMD64"):
        raise UsageError(f"this machine is {platform.machine()}; Colibri's kernels run on x86-64 only so far")
    level = "vnni" if vnni_here else "v3" if set(_V3) <= host else "v2"
    if not set(_V2) <= host:
        lacking = set(_V2) - host
        raise UsageError(f"this CPU ({cpu}) lacks {', '.join(sorted(lacking))}; x86-64-v2 (2009) or newer is needed")
    return Isa(level, cpu, "the CPU's own features", host if level != "v2" else frozenset(_V2))


def apply(isa: Isa) -> None:
    """Tell numba the level, before its first kernel is compiled."""
    name = LEVELS[isa.level][0] if isa.reason == "COLIBRI_ISA" or isa.level == "v2" else None
    if name is None:
        return
    if isa.level == "vnni" and "avxvnni" not in isa.features:
        name = "x86-64-v3"
    os.environ["NUMBA_CPU_NAME"] = name
    os.environ["NUMBA_CPU_FEATURES"] = ",".join(f"+{f}" for f in sorted(isa.features))
    config = sys.modules.get("numba.core.config")
    if config is not None:  # numba came first: it has read its environment already
        config.CPU_NAME = name  # type: ignore[attr-defined]
        config.CPU_FEATURES = os.environ["NUMBA_CPU_FEATURES"]  # type: ignore[attr-defined]


ISA = decide(os.environ.get("COLIBRI_ISA") or None)
apply(ISA)
