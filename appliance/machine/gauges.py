"""The machine's moving numbers for /admin/state, read when somebody asks and at most once a second.

Memory of the machine and of our container, page faults and disk reads of the engine process, CPUs, huge pages. Not
here: what follows from them (advice.py), the fixed facts the planner uses (host.py).
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.machine.cgroups import levels
from appliance.machine.cores import Cores, Node, temperature
from appliance.machine.host import read_machine, thp
from appliance.machine.kernel_files import meminfo, pairs, read_text
from appliance.machine.pressure import NOTHING_TOLD, Pressure, read_pressure

FRESH_S = 1.0
STALE_S = 30.0
"""A rate over a longer time would tell of the past: counting begins anew."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One look. `machine` holds bytes; rates are per second and None until there were two looks at one process."""

    machine: dict[str, int | None]
    major_faults_s: float | None
    disk_read_s: float | None
    cores: int
    load1: float | None
    nodes: list[Node]
    temp_c: float | None
    throttled: bool | None
    quota: float | None
    thp: str
    swappiness: int | None
    data_free: int | None
    data_total: int | None
    pressure: Pressure = NOTHING_TOLD

    def cpu(self) -> dict[str, Any]:
        return {
            "cores": self.cores, "load1": self.load1, "nodes": [node.json() for node in self.nodes],
            "temp_c": self.temp_c, "throttled": self.throttled, "quota": self.quota,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Counters:
    at: float
    pid: int
    major_faults: int | None
    disk_read: int | None


class Gauges:
    """`data_dir` is the folder whose disk is watched; `clock` is in seconds and only grows."""

    def __init__(self, data_dir: Path, *, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._data_dir = data_dir
        self._root = root
        self._clock = clock
        self._cores = Cores(root)
        self._before: _Counters | None = None
        self._kept: tuple[float, int | None, Reading] | None = None
        self._lock = threading.Lock()

    def read(self, worker: int | None) -> Reading:
        """The machine and the engine process now, or as it was within the last second. Fit for threads: on a machine
        of many CPUs it takes milliseconds, which no event loop should spend."""
        with self._lock:
            now = self._clock()
            if self._kept is None or self._kept[1] != worker or now - self._kept[0] >= FRESH_S:
                self._kept = (now, worker, self._look(worker, now))
            return self._kept[2]

    def _look(self, worker: int | None, now: float) -> Reading:
        faults, disk = self._rates(worker, now)
        machine = read_machine(self._root)
        load = read_text(self._root / "proc/loadavg").split()
        swappiness = read_text(self._root / "proc/sys/vm/swappiness").strip()
        free, total = _disk(self._data_dir)
        return Reading(
            machine=memory(self._root), major_faults_s=faults, disk_read_s=disk, cores=machine.physical_cores,
            load1=float(load[0]) if load and load[0].replace(".", "", 1).isdigit() else None,
            nodes=self._cores.nodes(), temp_c=temperature(self._root), throttled=self._cores.throttled(now),
            quota=machine.cpu_quota, thp=thp(self._root), data_free=free, data_total=total,
            swappiness=int(swappiness) if swappiness.isdigit() else None, pressure=read_pressure(self._root),
        )  # fmt: skip

    def _rates(self, worker: int | None, now: float) -> tuple[float | None, float | None]:
        before = self._before
        if worker is None:
            self._before = None
            return None, None
        self._before = after = _Counters(now, worker, _major_faults(self._root, worker), _disk_read(self._root, worker))
        if before is None or before.pid != worker or not 0 < now - before.at <= STALE_S:
            return None, None
        seconds = now - before.at
        return (
            _rate(before.major_faults, after.major_faults, seconds), _rate(before.disk_read, after.disk_read, seconds),
        )  # fmt: skip


def memory(root: Path) -> dict[str, int | None]:
    """Bytes as /proc/meminfo has them; `cached` is what the kernel could give back; `limit` is the container's, and
    `limit_used` what it cannot give back of it, of the level with the least room."""
    info = meminfo(root)
    limited = [(level.memory_limit, level.memory_used) for level in levels(root) if level.memory_limit is not None]
    limit, used = min(limited, key=lambda pair: pair[0] - pair[1], default=(None, None))
    cached = sum(info.get(name, 0) for name in ("Cached", "Buffers", "SReclaimable")) - info.get("Shmem", 0)
    swap_total, swap_free = info.get("SwapTotal"), info.get("SwapFree")
    return {
        "total": info.get("MemTotal"), "available": info.get("MemAvailable"), "free": info.get("MemFree"),
        "cached": max(0, cached) if info else None, "limit": limit, "limit_used": used, "swap_total": swap_total,
        "swap_used": None if swap_total is None or swap_free is None else swap_total - swap_free,
    }  # fmt: skip


def _major_faults(root: Path, pid: int) -> int | None:
    """Pages that had to be read from a disk, all threads: the 10th field after the name in brackets."""
    words = read_text(root / f"proc/{pid}/stat").rpartition(")")[2].split()
    return int(words[9]) if len(words) > 9 and words[9].isdigit() else None


def _disk_read(root: Path, pid: int) -> int | None:
    """Bytes that really came from a disk for this process."""
    return pairs(root / f"proc/{pid}/io").get("read_bytes:")


def _rate(before: int | None, after: int | None, seconds: float) -> float | None:
    return None if before is None or after is None else round(max(0, after - before) / seconds, 1)


def _disk(folder: Path) -> tuple[int | None, int | None]:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None, None
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
