"""Reads the machine as this process may use it: memory, CPUs, quota, huge pages. Not here: changing it (tune.py).

Everything comes from files below `root`, so that a test lays another machine into a folder.

    memory available = min(MemAvailable, of each cgroup level: limit - used + file cache that can be dropped at once)
    own bytes        = private memory of this process and of `beside`, which is in use and ours
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from appliance.machine.cgroups import Level, levels
from appliance.machine.kernel_files import cpu_list, meminfo, number, read_text
from engine.budget import Machine, in_words, threads_for

# A core below this share of the fastest one is a slow one. Efficiency cores reach 59 to 75%, favoured cores of one kind
# differ by up to 10%.
SLOW_SHARE = 0.8


class Choice(NamedTuple):
    """A number and the sentence that explains it."""

    value: int
    reason: str


def read_machine(root: Path = Path("/"), beside: Sequence[int] = ()) -> Machine:
    """The machine now; a file that is missing or odd counts as 'no limit', never as an error. `beside` are further
    processes of ours: what they and this one hold is in each plan already, so it counts as room."""
    groups = list(levels(root))
    info = meminfo(root)
    memory = _memory(info, groups)
    limits = [level.memory_limit for level in groups if level.memory_limit is not None]
    quotas = [level.cpu_quota for level in groups if level.cpu_quota is not None]
    mask = _cpu_mask(root, groups)
    fast, slow = _physical_cores(root, mask)
    return Machine(
        memory_available=memory.value,
        memory_limit=min(limits) if limits else None,
        physical_cores=fast,
        cpu_mask=mask,
        cpu_quota=min(quotas) if quotas else None,
        page_size=os.sysconf("SC_PAGE_SIZE"),
        thp=thp(root),
        swap=info.get("SwapFree", 0),
        memory_reason=memory.reason,
        slow_cores=slow,
        own_bytes=sum(_anon(root, pid) for pid in ("self", *map(str, beside))),
    )


def _anon(root: Path, pid: str) -> int:
    """Private memory of a process, 0 for one that is gone."""
    found = re.search(r"^RssAnon:\s+(\d+) kB", read_text(root / f"proc/{pid}/status"), re.M)
    return int(found[1]) * 1024 if found else 0


def thread_choice(machine: Machine, tuned: int | None = None) -> Choice:
    """Threads that compute: the planner's choice for this mask and quota, or the knee that tuning found below it."""
    choice = Choice(*threads_for(machine))
    if tuned is not None and 1 <= tuned < choice.value:
        return Choice(tuned, "measured: more threads bring nothing here")
    return choice


def default_threads(machine: Machine, tuned: int | None = None) -> int:
    return thread_choice(machine, tuned).value


def _memory(info: dict[str, int], groups: list[Level]) -> Choice:
    """The least of all rooms, with words for each of them."""
    available = _available(info)
    rooms, words = [available], [f"available {in_words(available)}"]
    tight = min((x for x in groups if x.memory_limit is not None), key=_room, default=None)
    if tight is not None and tight.memory_limit is not None:
        rooms.append(_room(tight))
        words.insert(0, f"container limit {in_words(tight.memory_limit)} less {in_words(tight.memory_used)} in use")
    reason = f"min({', '.join(words)})" if len(words) > 1 else f"{words[0]}, file cache included"
    return Choice(max(0, min(rooms)), reason)


def _room(level: Level) -> int:
    return (level.memory_limit or 0) - level.memory_used


def _available(info: dict[str, int]) -> int:
    """MemAvailable; on a kernel that does not tell, free memory and the file cache."""
    if "MemAvailable" in info:
        return info["MemAvailable"]
    if "MemFree" not in info:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cache = sum(info.get(name, 0) for name in ("Buffers", "Cached", "SReclaimable"))
    return info["MemFree"] + max(0, cache - info.get("Shmem", 0))


def _cpu_mask(root: Path, groups: list[Level]) -> tuple[int, ...]:
    """CPUs that this process may run on, by affinity, cpuset and what is online. The kernel's mask holds all three,
    but one of a sandbox or a virtual machine may name CPUs that are not there."""
    online = cpu_list(read_text(root / "sys/devices/system/cpu/online").strip())
    found = re.search(r"^Cpus_allowed_list:\s*(\S+)", read_text(root / "proc/self/status"), re.M)
    mask = (cpu_list(found[1]) if found else online) or tuple(sorted(os.sched_getaffinity(0)))
    for allowed in (online, *(level.cpus for level in groups)):
        if allowed:
            mask = tuple(cpu for cpu in mask if cpu in set(allowed)) or mask
    return mask


def _physical_cores(root: Path, mask: tuple[int, ...]) -> tuple[int, int]:
    """Cores behind the CPUs of the mask, the fast ones and the slow ones: hyper-threads of one core count once; unknown
    topology counts each CPU. Fast and slow ones meet at a barrier after each operation, so a slow one is no help."""
    speeds: dict[tuple[int, ...], int] = {}
    for cpu in mask:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}"
        siblings = read_text(folder / "topology/core_cpus_list") or read_text(folder / "topology/thread_siblings_list")
        core = cpu_list(siblings.strip()) or (cpu,)
        speed = number(folder / "cpu_capacity") or number(folder / "cpufreq/cpuinfo_max_freq") or 0
        speeds[core] = max(speeds.get(core, 0), speed)
    top = max(speeds.values(), default=0)
    slow = sum(0 < speed < SLOW_SHARE * top for speed in speeds.values())
    return max(1, len(speeds) - slow), slow


def thp(root: Path) -> str:
    """never, madvise or always; 'unknown' where the kernel has none."""
    found = re.search(r"\[(\w+)\]", read_text(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    return found[1] if found else "unknown"
