"""What this process may use, memory, cores and how fast they are, and how a need compares with it. Not here: reading
the machine (appliance/machine), what a model needs (footprint.py).
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

MIB = 1 << 20
GIB = 1 << 30

# OK: all of it stays in memory. TIGHT: that too, with under a tenth of the budget left. PAGES: it runs, but the weights
# do not stay in memory. NO: cache and engine alone do not fit, or a copy that was asked for does not.
Verdict = Literal["OK", "TIGHT", "PAGES", "NO"]


class Rate(NamedTuple):
    """Bytes per second, where the number comes from in words, and its provenance, measured or policy."""

    bytes_s: float
    reason: str
    provenance: str = "policy"


# A middling desktop's memory, a middling SSD.
ASSUMED_MEMORY = Rate(16e9, "assumed, nothing measured yet")
ASSUMED_DISK = Rate(500e6, "assumed, nothing measured yet")


@dataclass(frozen=True, slots=True)
class Machine:
    """What this process may use. Bytes; `memory_available` already respects the cgroups, `memory_limit` is their
    least limit, `memory_reason` says which of them decided; `own_bytes` is what our processes hold already, which their
    plan counts again; `cpu_mask` lists the allowed CPUs, `physical_cores` those that compute alike and `slow_cores` the
    ones beside them that do not; `thp` is never, madvise, always or unknown; `disk_kind` of the model's disk is solid,
    rotating, network, memory or unknown."""

    memory_available: int
    memory_limit: int | None
    physical_cores: int
    cpu_mask: tuple[int, ...]
    cpu_quota: float | None
    page_size: int = 4096
    thp: str = "unknown"
    swap: int = 0
    memory_reason: str = "memory available now"
    slow_cores: int = 0
    own_bytes: int = 0
    memory_rate: Rate = ASSUMED_MEMORY
    disk_rate: Rate = ASSUMED_DISK
    disk_kind: str = "unknown"


class Budget(NamedTuple):
    """Bytes that a model with its cache and engine may take, and where the number comes from."""

    n_bytes: int
    reason: str


def budget_of(machine: Machine, freed_bytes: int = 0) -> Budget:
    """The memory that is really there, with what a worker that will be stopped gives back before the next one starts.

    Page cache counts as available: a model's own file in it is no reason against the model.
    """
    n_bytes, reason = machine.memory_available + machine.own_bytes + freed_bytes, machine.memory_reason
    if machine.own_bytes:
        reason += f", and {in_words(machine.own_bytes)} that are ours already"
    if freed_bytes:
        reason += f", and {in_words(freed_bytes)} that the running worker gives back"
    limit = machine.memory_limit
    if limit is not None and limit < n_bytes:
        return Budget(limit, f"{reason}, under a limit of {in_words(limit)}")
    return Budget(n_bytes, reason)


def verdict_of(total: int, least: int, budget: int, is_copy: bool) -> Verdict:
    """`total`: weights, cache and engine; `least`: what must be memory of our own; `is_copy`: weights may not page."""
    if least > budget or (is_copy and total > budget):
        return "NO"
    if total > budget:
        return "PAGES"
    return "TIGHT" if (budget - total) * 10 < budget else "OK"


def threads_for(machine: Machine) -> tuple[int, str]:
    """Threads that compute, and why: physical cores of the mask, within the CPU quota, at least 1."""
    n, reason = machine.physical_cores, f"physical cores among the {len(machine.cpu_mask)} CPUs this process may use"
    if machine.slow_cores:
        reason += f", without {machine.slow_cores} slow ones that the others would wait for"
    if machine.cpu_quota is not None and machine.cpu_quota < n:
        n, reason = math.floor(machine.cpu_quota), f"the cgroup's CPU quota is {machine.cpu_quota:g}"
    return max(1, n), reason


def mib(n_bytes: int) -> str:
    """Bytes for people, rounded up: "1,234 MiB"."""
    return f"{-(-n_bytes // MIB):,} MiB"


def in_words(n_bytes: int) -> str:
    """Bytes for people: "1.59 GiB", below one "612 MiB"."""
    return f"{n_bytes / GIB:.2f} GiB" if abs(n_bytes) >= GIB else f"{n_bytes / MIB:.0f} MiB"
