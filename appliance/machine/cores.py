"""What the CPUs are doing: load per memory node, clock, governor, temperature, throttling. Not here: memory.

Everything is read below `root`. Many machines tell only a part (a virtual one has neither clock control nor sensors);
what is not told is None, never a guess.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from appliance.machine.kernel_files import cpu_list, read_text

CPUS = "sys/devices/system/cpu"
ASKED = 4
"""CPUs per node whose clock is asked for: on some kernels each one costs an interrupt to that CPU."""
SENSORS = ("x86_pkg_temp", "coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal", "soc_thermal")
"""Names that drivers give to the CPU's own sensor; a board's sensor says little about the CPU."""
THROTTLED_S = 60.0
"""A throttle event counts as news for so long."""
Ticks = dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Node:
    """`util` is the busy share of its CPUs since the last look (None at the first); `mhz` a mean over some of them."""

    node: int
    cpus: int
    util: float | None
    mhz: int | None
    governor: str | None

    def json(self) -> dict[str, Any]:
        return {"node": self.node, "cpus": self.cpus, "util": self.util, "mhz": self.mhz, "governor": self.governor}


class Cores:
    """Looks again and again; loads and throttling are differences between two looks."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._nodes = node_cpus(root)
        self._ticks: Ticks = {}
        self._throttles: int | None = None
        self._throttled_at: float | None = None

    def nodes(self) -> list[Node]:
        now, before = ticks(self._root), self._ticks
        self._ticks = now
        return [
            Node(node, len(cpus), _busy(before, now, cpus), self._mhz(cpus), self._governor(cpus))
            for node, cpus in self._nodes.items()
        ]

    def throttled(self, now: float) -> bool | None:
        """Whether the CPU was slowed for heat within the last minute; None where the kernel does not count that."""
        files = (self._root / CPUS).glob("cpu[0-9]*/thermal_throttle/*_throttle_count")
        known = [n for n in map(_int, files) if n is not None]
        if not known:
            return None
        total = sum(known)
        if self._throttles is not None and total > self._throttles:
            self._throttled_at = now
        self._throttles = total
        return self._throttled_at is not None and now - self._throttled_at < THROTTLED_S

    def _mhz(self, cpus: tuple[int, ...]) -> int | None:
        asked = cpus[:: max(1, len(cpus) // ASKED)][:ASKED]
        khz = [_int(self._root / CPUS / f"cpu{cpu}/cpufreq/scaling_cur_freq") for cpu in asked]
        known = [n for n in khz if n]
        if known:
            return round(mean(known) / 1000)
        rows = re.findall(r"^cpu MHz\s*:\s*([\d.]+)", read_text(self._root / "proc/cpuinfo"), re.M)
        listed = [float(rows[cpu]) for cpu in asked if cpu < len(rows)]
        return round(mean(listed)) if listed else None

    def _governor(self, cpus: tuple[int, ...]) -> str | None:
        """The node's governor; of several the one that is not performance, since it sets the pace."""
        files = [self._root / CPUS / f"cpu{cpu}/cpufreq/scaling_governor" for cpu in cpus]
        words = sorted({word for file in files if (word := read_text(file).strip()[:32])})
        return next((word for word in words if word != "performance"), words[0] if words else None)


def node_cpus(root: Path) -> dict[int, tuple[int, ...]]:
    """Node number → its CPUs that are online; a machine that names no nodes is one node."""
    found = {}
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        cpus = cpu_list(read_text(folder / "cpulist").strip())
        if cpus:
            found[int(folder.name.removeprefix("node"))] = cpus
    return dict(sorted(found.items())) or {0: tuple(ticks(root)) or (0,)}


def ticks(root: Path) -> Ticks:
    """CPU → (busy, all) in clock ticks since the machine started; waiting for a disk is not busy."""
    rows = re.findall(r"^cpu(\d+) ([\d ]+)$", read_text(root / "proc/stat"), re.M)
    found = {}
    for cpu, numbers in rows:
        # user nice system idle iowait irq softirq steal; guest times are in user's already.
        values = [int(n) for n in numbers.split()[:8]]
        idle = sum(values[3:5])
        found[int(cpu)] = (sum(values) - idle, sum(values))
    return found


def temperature(root: Path) -> float | None:
    """The CPU's hottest sensor in °C."""
    zones = (root / "sys/class/thermal").glob("thermal_zone*")
    files = [zone / "temp" for zone in zones if read_text(zone / "type").strip() in SENSORS]
    for chip in (root / "sys/class/hwmon").glob("hwmon*"):
        if read_text(chip / "name").strip() in SENSORS:
            files += chip.glob("temp*_input")
    # A sensor that is switched off says 0 or nonsense below zero.
    known = [n / 1000 for n in map(_int, files) if n is not None and 0 < n < 150_000]
    return round(max(known), 1) if known else None


def _busy(before: Ticks, now: Ticks, cpus: tuple[int, ...]) -> float | None:
    both = [cpu for cpu in cpus if cpu in before and cpu in now]
    busy = sum(now[cpu][0] - before[cpu][0] for cpu in both)
    whole = sum(now[cpu][1] - before[cpu][1] for cpu in both)
    return round(min(1.0, max(0.0, busy / whole)), 3) if whole > 0 else None


def _int(path: Path) -> int | None:
    text = read_text(path).strip()
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else None
