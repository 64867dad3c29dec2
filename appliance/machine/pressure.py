"""Memory pressure: who waits for memory or the disk, and what the kernel has done at our group's limits. Not here: what
follows from it (advice.py; the engine's own cache).

    /proc/pressure/memory, io     the machine: share of time that some, or all, tasks stood still
    memory.pressure, io.pressure  the same of our cgroup (version 2), which counts where it is told
    memory.events                 how often the group met `high` and `max`, and whether someone was killed

A kernel without PSI (built so, or booted with psi=0) tells nothing: None, never a guess.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from appliance.machine.cgroups import folders
from appliance.machine.kernel_files import pairs, read_text

SHARE = re.compile(r"^(some|full) avg10=([\d.]+) ", re.M)


@dataclass(frozen=True, slots=True)
class Pressure:
    """Percent of the last ten seconds in which some, or all, tasks waited; events are counts since the group began, of
    the level above us where they are highest."""

    memory_some: float | None = None
    memory_full: float | None = None
    io_some: float | None = None
    io_full: float | None = None
    high: int | None = None
    max: int | None = None
    oom_kill: int | None = None

    def json(self) -> dict[str, Any]:
        return asdict(self)

    def shares(self) -> dict[str, float | None]:
        """Percent by `memory_some` and its like."""
        names = ("memory_some", "memory_full", "io_some", "io_full")
        return {name: getattr(self, name) for name in names}

    def events(self) -> dict[str, int | None]:
        return {"high": self.high, "max": self.max, "oom_kill": self.oom_kill}


NOTHING_TOLD = Pressure()


def read_pressure(root: Path = Path("/")) -> Pressure:
    """The pressure now, of our group where it is told, else of the machine."""
    groups = list(folders(root))
    found: dict[str, float | None] = {}
    for kind in ("memory", "io"):
        places = [*(folder / f"{kind}.pressure" for folder in groups[:1]), root / f"proc/pressure/{kind}"]
        shares = next((shares for place in places if (shares := dict(_shares(place)))), {})
        found |= {f"{kind}_{word}": shares.get(word) for word in ("some", "full")}
    events = [told for folder in groups if (told := pairs(folder / "memory.events"))]
    most = {name: max(told.get(name, 0) for told in events) if events else None for name in ("high", "max", "oom_kill")}
    return Pressure(
        found["memory_some"], found["memory_full"], found["io_some"], found["io_full"],
        most["high"], most["max"], most["oom_kill"],
    )  # fmt: skip


def _shares(path: Path) -> Iterator[tuple[str, float]]:
    for word, share in SHARE.findall(read_text(path)):
        if share.count(".") <= 1 and share.strip("."):
            yield word, float(share)
