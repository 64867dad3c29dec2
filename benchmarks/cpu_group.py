"""A control group with a CPU quota of its own, of version 1 or 2, below ours. Not here: what is measured in it.

Needs root and a writable hierarchy: OSError where the kernel or a container refuses.
"""

import os
from pathlib import Path
from types import TracebackType
from typing import Self

PERIOD_US = 100_000


class CpuGroup:
    """`with CpuGroup("name", quota=1.0) as group`: `enter` moves this process in, `leave` back; gone at the end."""

    def __init__(self, name: str, quota: float) -> None:
        self._home = _home()
        self._is_v1 = (self._home / "cpu.shares").exists() or (self._home / "cpu.cfs_quota_us").exists()
        self.path = self._home / f"{name}-{os.getpid()}"
        self._quota_us = round(quota * PERIOD_US)

    def __enter__(self) -> Self:
        self.path.mkdir()
        try:
            if self._is_v1:
                (self.path / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (self.path / "cpu.cfs_quota_us").write_text(str(self._quota_us))
            else:
                if not (self.path / "cpu.max").exists():
                    (self._home / "cgroup.subtree_control").write_text("+cpu")
                (self.path / "cpu.max").write_text(f"{self._quota_us} {PERIOD_US}")
        except OSError:
            self.path.rmdir()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for pid in (self.path / "cgroup.procs").read_text().split():
            (self._home / "cgroup.procs").write_text(pid)
        self.path.rmdir()

    def enter(self) -> None:
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def leave(self) -> None:
        (self._home / "cgroup.procs").write_text(str(os.getpid()))

    def periods(self) -> tuple[int, int]:
        """Periods in which somebody here ran, and those of them in which the quota was used up."""
        words = dict(line.split() for line in (self.path / "cpu.stat").read_text().splitlines())
        return int(words["nr_periods"]), int(words["nr_throttled"])


def _home() -> Path:
    """The folder of our own group in the hierarchy that rules the CPU."""
    mounts = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split()[:3]
        if kind == "cgroup" and "cpu" in options.split(","):
            mounts["cpu"] = left.split()[4]
        elif kind == "cgroup2":
            mounts.setdefault("", left.split()[4])
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if "cpu" in names.split(",") and "cpu" in mounts:
            return Path(mounts["cpu"], path.strip("/"))
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::") and "" in mounts:
            return Path(mounts[""], line[3:].strip("/"))
    raise FileNotFoundError("no control group hierarchy for the CPU is mounted")
