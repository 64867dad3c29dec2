"""The limits of our control groups, at every level from ours up to the root. Version 2 and version 1 alike, since both
may be mounted at once. Not here: what they leave to us (host.py).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from appliance.machine.kernel_files import NO_LIMIT, cpu_list, number, pairs, read_text


class Level(NamedTuple):
    """One folder of a hierarchy. `memory_used` is without file cache that can be dropped; no CPUs: no restriction."""

    memory_limit: int | None = None
    memory_used: int = 0
    cpu_quota: float | None = None
    cpus: tuple[int, ...] = ()


def levels(root: Path) -> Iterator[Level]:
    """Each cgroup from ours to the root, of each hierarchy that is mounted."""
    mounts = _mounts(root) or _usual_mounts(root)
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        names = set(controllers.split(",")) if controllers else {""}
        for name in names & {"", "memory", "cpu", "cpuset"}:
            for mount_root, point in mounts.get(name, ()):
                top = root / point.lstrip("/")
                for folder in _upwards(top, _inside(path, mount_root)):
                    yield _level_v2(folder) if name == "" else _level_v1(folder, name)


def folders(root: Path) -> Iterator[Path]:
    """The folders of version 2 alone, ours first: files that are no limits are read from them."""
    mounts = _mounts(root) or _usual_mounts(root)
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            for mount_root, point in mounts.get("", ()):
                yield from _upwards(root / point.lstrip("/"), _inside(path, mount_root))


def _mounts(root: Path) -> dict[str, list[tuple[str, str]]]:
    """Controller ("" for version 2) → (root of the mount inside the hierarchy, mount point)."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in read_text(root / "proc/self/mountinfo").splitlines():
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


def _level_v2(folder: Path) -> Level:
    # memory.high does not kill, but the kernel takes pages back from there on: a limit for all that plans.
    limits = [n for n in (number(folder / "memory.max"), number(folder / "memory.high")) if n is not None]
    used = 0
    if limits:
        used = (number(folder / "memory.current") or 0) - _droppable(pairs(folder / "memory.stat"), "", "file")
    quota, _, period = read_text(folder / "cpu.max").strip().partition(" ")
    cpus = int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None
    cpuset = cpu_list(read_text(folder / "cpuset.cpus.effective").strip())
    return Level(min(limits) if limits else None, max(0, used), cpus, cpuset)


def _level_v1(folder: Path, controller: str) -> Level:
    if controller == "cpuset":
        return Level(cpus=cpu_list(read_text(folder / "cpuset.effective_cpus").strip()))
    if controller == "cpu":
        quota, period = number(folder / "cpu.cfs_quota_us"), number(folder / "cpu.cfs_period_us")
        return Level(cpu_quota=quota / period if quota and quota > 0 and period else None)
    stat = pairs(folder / "memory.stat")
    # A container sees no group above its own, but is told the least limit of them all.
    told = (number(folder / "memory.limit_in_bytes"), stat.get("hierarchical_memory_limit"))
    limits = [n for n in told if n is not None and n < NO_LIMIT]
    if not limits:
        return Level()
    used = (number(folder / "memory.usage_in_bytes") or 0) - _droppable(stat, "total_", "cache")
    return Level(min(limits), max(0, used))


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
