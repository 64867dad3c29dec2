"""Reads the machine as this process may use it: memory, CPUs, quota, huge pages. Not here: changing it (host_tune.py).

Everything comes from files below `root`, so that a test lays another machine into a folder. cgroup limits are the
smallest of all levels from ours up to the root, version 2 and version 1 alike (both may be mounted at once).
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from engine.planner import Machine, threads_for

# Version 1 writes "no limit" as the largest page-aligned int64; nothing real is over 2^60.
NO_LIMIT = 1 << 60


class Choice(NamedTuple):
    """A number and the sentence that explains it."""

    value: int
    reason: str


def read_machine(root: Path = Path("/")) -> Machine:
    """The machine now; a file that is missing or odd counts as 'no limit', never as an error."""
    levels = list(_levels(root))
    info = _meminfo(root)
    available = info.get("MemAvailable", 0) or psutil.virtual_memory().available
    limits = [level.memory_limit for level in levels if level.memory_limit is not None]
    room = [level.memory_limit - level.memory_used for level in levels if level.memory_limit is not None]
    quotas = [level.cpu_quota for level in levels if level.cpu_quota is not None]
    mask = _cpu_mask(root)
    return Machine(
        memory_available=max(0, min([available, *room])),
        memory_limit=min(limits) if limits else None,
        physical_cores=_physical_cores(root, mask),
        cpu_mask=mask,
        cpu_quota=min(quotas) if quotas else None,
        page_size=os.sysconf("SC_PAGE_SIZE"),
        thp=_thp(root),
        swap=info.get("SwapFree", 0),
    )


def thread_choice(machine: Machine, tuned: int | None = None) -> Choice:
    """Threads that compute: the planner's choice for this mask and quota, or the knee that tuning found below it."""
    choice = Choice(*threads_for(machine))
    if tuned is not None and 1 <= tuned < choice.value:
        return Choice(tuned, "measured: more threads bring nothing here")
    return choice


def default_threads(machine: Machine, tuned: int | None = None) -> int:
    return thread_choice(machine, tuned).value


class _Level(NamedTuple):
    memory_limit: int | None
    memory_used: int
    cpu_quota: float | None


def _levels(root: Path) -> Iterator[_Level]:
    """Each cgroup from ours to the root, of each hierarchy that is mounted."""
    mounts = _mounts(root)
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        names = set(controllers.split(",")) if controllers else {""}
        for name in names & {"", "memory", "cpu"}:
            for mount_root, point in mounts.get(name, ()):
                top = root / point.lstrip("/")
                for folder in _upwards(top, _inside(path, mount_root)):
                    yield _level_v2(folder) if name == "" else _level_v1(folder, name)


def _mounts(root: Path) -> dict[str, list[tuple[str, str]]]:
    """Controller ("" for version 2) → (root of the mount inside the hierarchy, mount point)."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in _read(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, tail = left.split(), right.split()
        if len(fields) < 5 or len(tail) < 3:
            continue
        if tail[0] == "cgroup2":
            found.setdefault("", []).append((fields[3], fields[4]))
        elif tail[0] == "cgroup":
            for controller in {"memory", "cpu"} & set(tail[2].split(",")):
                found.setdefault(controller, []).append((fields[3], fields[4]))
    return found


def _inside(path: str, mount_root: str) -> str:
    """Our cgroup's path below the mount. A container sees its group as the mount's root, whatever /proc calls it."""
    if mount_root not in ("", "/"):
        path = path.removeprefix(mount_root) if f"{path}/".startswith(f"{mount_root}/") else ""
    return "" if ".." in path.split("/") else path.strip("/")


def _upwards(top: Path, inside: str) -> Iterator[Path]:
    folder = top / inside
    if not folder.is_dir():
        folder = top
    while True:
        yield folder
        if folder == top:
            return
        folder = folder.parent


def _level_v2(folder: Path) -> _Level:
    # memory.high does not kill, but the kernel takes pages back from there on: a limit for all that plans.
    limits = [n for n in (_number(folder / "memory.max"), _number(folder / "memory.high")) if n is not None]
    used = 0
    if limits:
        stat = _pairs(folder / "memory.stat")
        reclaimable = stat.get("file", 0) - stat.get("shmem", 0) + stat.get("slab_reclaimable", 0)
        used = (_number(folder / "memory.current") or 0) - max(0, reclaimable)
    quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
    cpus = int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None
    return _Level(min(limits) if limits else None, max(0, used), cpus)


def _level_v1(folder: Path, controller: str) -> _Level:
    if controller == "cpu":
        quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        return _Level(None, 0, quota / period if quota and quota > 0 and period else None)
    limit = _number(folder / "memory.limit_in_bytes")
    if limit is None:
        return _Level(None, 0, None)
    stat = _pairs(folder / "memory.stat")
    reclaimable = stat.get("total_cache", 0) - stat.get("total_shmem", 0)
    return _Level(limit, max(0, (_number(folder / "memory.usage_in_bytes") or 0) - max(0, reclaimable)), None)


def _meminfo(root: Path) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    rows = re.findall(r"^(\w+):\s+(\d+) kB", _read(root / "proc/meminfo"), re.M)
    return {name: int(kb) * 1024 for name, kb in rows}


def _cpu_mask(root: Path) -> tuple[int, ...]:
    """CPUs that this process may run on, by affinity and cpuset together, as the kernel reports them."""
    found = re.search(r"^Cpus_allowed_list:\s*(\S+)", _read(root / "proc/self/status"), re.M)
    mask = cpu_list(found[1]) if found else tuple(sorted(os.sched_getaffinity(0)))
    # A mask may name CPUs that are not there (a virtual machine's possible ones).
    online = cpu_list(_read(root / "sys/devices/system/cpu/online").strip())
    return tuple(cpu for cpu in mask if cpu in set(online)) or mask if online else mask


def _physical_cores(root: Path, mask: tuple[int, ...]) -> int:
    """Cores behind the CPUs of the mask: hyper-threads of one core count once; unknown topology counts each CPU."""
    cores = set()
    for cpu in mask:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        siblings = _read(topology / "core_cpus_list") or _read(topology / "thread_siblings_list")
        cores.add(cpu_list(siblings.strip()) or (cpu,))
    return max(1, len(cores))


def _thp(root: Path) -> str:
    """never, madvise or always; 'unknown' where the kernel has none."""
    found = re.search(r"\[(\w+)\]", _read(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    return found[1] if found else "unknown"


def cpu_list(text: str) -> tuple[int, ...]:
    """The kernel's list form, "0-2,5", as numbers; anything else is empty."""
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return ()
        cpus.update(range(int(first), min(int(last or first), int(first) + 65536) + 1))
    return tuple(sorted(cpus))


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    value = int(text) if re.fullmatch(r"-?\d{1,20}", text) else None
    return None if value is None or value >= NO_LIMIT else value


def _pairs(path: Path) -> dict[str, int]:
    rows = (line.split() for line in _read(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
