"""Reads the machine as this process may use it: memory, CPUs, quota, huge pages. Not here: changing it (tune.py).

Everything comes from files below `root`, so that a test lays another machine into a folder. cgroup limits are the
smallest of all levels from ours up to the root, version 2 and version 1 alike (both may be mounted at once).

    memory available = min(MemAvailable, of each cgroup level: limit - used + file cache that can be dropped at once)
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from engine.budget import Machine, in_words, threads_for

# Version 1 writes "no limit" as the largest page-aligned int64; nothing real is over 2^60.
NO_LIMIT = 1 << 60
# A core below this share of the fastest one is a slow one. Efficiency cores reach 59 to 75%, favoured cores of one kind
# differ by up to 10%.
SLOW_SHARE = 0.8


class Choice(NamedTuple):
    """A number and the sentence that explains it."""

    value: int
    reason: str


def read_machine(root: Path = Path("/")) -> Machine:
    """The machine now; a file that is missing or odd counts as 'no limit', never as an error."""
    levels = list(_levels(root))
    info = _meminfo(root)
    memory = _memory(info, levels)
    limits = [level.memory_limit for level in levels if level.memory_limit is not None]
    quotas = [level.cpu_quota for level in levels if level.cpu_quota is not None]
    mask = _cpu_mask(root, levels)
    fast, slow = _physical_cores(root, mask)
    return Machine(
        memory_available=memory.value,
        memory_limit=min(limits) if limits else None,
        physical_cores=fast,
        cpu_mask=mask,
        cpu_quota=min(quotas) if quotas else None,
        page_size=os.sysconf("SC_PAGE_SIZE"),
        thp=_thp(root),
        swap=info.get("SwapFree", 0),
        memory_reason=memory.reason,
        slow_cores=slow,
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
    """One folder of a hierarchy. `used` is without file cache that can be dropped; no CPUs are no restriction."""

    memory_limit: int | None = None
    memory_used: int = 0
    cpu_quota: float | None = None
    cpus: tuple[int, ...] = ()


def _memory(info: dict[str, int], levels: list[_Level]) -> Choice:
    """The least of all rooms, with words for each of them."""
    available = _available(info)
    rooms, words = [available], [f"available {in_words(available)}"]
    tight = min((x for x in levels if x.memory_limit is not None), key=_room, default=None)
    if tight is not None and tight.memory_limit is not None:
        rooms.append(_room(tight))
        words.insert(0, f"container limit {in_words(tight.memory_limit)} less {in_words(tight.memory_used)} in use")
    reason = f"min({', '.join(words)})" if len(words) > 1 else f"{words[0]}, file cache included"
    return Choice(max(0, min(rooms)), reason)


def _room(level: _Level) -> int:
    return (level.memory_limit or 0) - level.memory_used


def _available(info: dict[str, int]) -> int:
    """MemAvailable; on a kernel that does not tell, free memory and the file cache."""
    if "MemAvailable" in info:
        return info["MemAvailable"]
    if "MemFree" not in info:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cache = sum(info.get(name, 0) for name in ("Buffers", "Cached", "SReclaimable"))
    return info["MemFree"] + max(0, cache - info.get("Shmem", 0))


def _levels(root: Path) -> Iterator[_Level]:
    """Each cgroup from ours to the root, of each hierarchy that is mounted."""
    mounts = _mounts(root) or _usual_mounts(root)
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        names = set(controllers.split(",")) if controllers else {""}
        for name in names & {"", "memory", "cpu", "cpuset"}:
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
            for controller in {"memory", "cpu", "cpuset"} & set(tail[2].split(",")):
                found.setdefault(controller, []).append((fields[3], fields[4]))
    return found


def _usual_mounts(root: Path) -> dict[str, list[tuple[str, str]]]:
    """Where hierarchies lie nearly everywhere, for a sandbox that hides the list of mounts."""
    places = {"": "/sys/fs/cgroup", **{name: f"/sys/fs/cgroup/{name}" for name in ("memory", "cpu", "cpuset")}}
    return {name: [("/", place)] for name, place in places.items() if (root / place.lstrip("/")).is_dir()}


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
        used = (_number(folder / "memory.current") or 0) - _droppable(_pairs(folder / "memory.stat"), "", "file")
    quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
    cpus = int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None
    cpuset = cpu_list(_read(folder / "cpuset.cpus.effective").strip())
    return _Level(min(limits) if limits else None, max(0, used), cpus, cpuset)


def _level_v1(folder: Path, controller: str) -> _Level:
    if controller == "cpuset":
        return _Level(cpus=cpu_list(_read(folder / "cpuset.effective_cpus").strip()))
    if controller == "cpu":
        quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        return _Level(cpu_quota=quota / period if quota and quota > 0 and period else None)
    limit = _number(folder / "memory.limit_in_bytes")
    if limit is None:
        return _Level()
    droppable = _droppable(_pairs(folder / "memory.stat"), "total_", "cache")
    return _Level(limit, max(0, (_number(folder / "memory.usage_in_bytes") or 0) - droppable))


def _droppable(stat: dict[str, int], prefix: str, file: str) -> int:
    """Clean file cache and slabs that the kernel gives back at once; locked pages and shared memory are in no list."""
    lists = [f"{prefix}active_file", f"{prefix}inactive_file"]
    if all(name in stat for name in lists):
        cache = sum(stat[name] for name in lists)
    else:
        cache = stat.get(prefix + file, 0) - stat.get(f"{prefix}shmem", 0)
    dirty = ("file_dirty", "file_writeback") if file == "file" else ("total_dirty", "total_writeback")
    cache -= sum(stat.get(name, 0) for name in dirty)
    return max(0, cache) + stat.get("slab_reclaimable", 0)


def _meminfo(root: Path) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    rows = re.findall(r"^(\w+):\s+(\d+) kB", _read(root / "proc/meminfo"), re.M)
    return {name: int(kb) * 1024 for name, kb in rows}


def _cpu_mask(root: Path, levels: list[_Level]) -> tuple[int, ...]:
    """CPUs that this process may run on, by affinity, cpuset and what is online. The kernel's mask holds all three,
    but one of a sandbox or a virtual machine may name CPUs that are not there."""
    online = cpu_list(_read(root / "sys/devices/system/cpu/online").strip())
    found = re.search(r"^Cpus_allowed_list:\s*(\S+)", _read(root / "proc/self/status"), re.M)
    mask = (cpu_list(found[1]) if found else online) or tuple(sorted(os.sched_getaffinity(0)))
    for allowed in (online, *(level.cpus for level in levels)):
        if allowed:
            mask = tuple(cpu for cpu in mask if cpu in set(allowed)) or mask
    return mask


def _physical_cores(root: Path, mask: tuple[int, ...]) -> tuple[int, int]:
    """Cores behind the CPUs of the mask, the fast ones and the slow ones: hyper-threads of one core count once; unknown
    topology counts each CPU. Fast and slow ones meet at a barrier after each operation, so a slow one is no help."""
    speeds: dict[tuple[int, ...], int] = {}
    for cpu in mask:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}"
        siblings = _read(folder / "topology/core_cpus_list") or _read(folder / "topology/thread_siblings_list")
        core = cpu_list(siblings.strip()) or (cpu,)
        speed = _number(folder / "cpu_capacity") or _number(folder / "cpufreq/cpuinfo_max_freq") or 0
        speeds[core] = max(speeds.get(core, 0), speed)
    top = max(speeds.values(), default=0)
    slow = sum(0 < speed < SLOW_SHARE * top for speed in speeds.values())
    return max(1, len(speeds) - slow), slow


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
