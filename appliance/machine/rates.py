"""How fast memory and disks are: measured once, kept in the data folder, else assumed by kind. Not here: the disk's own
facts (disk.py), what follows from the figures (engine/planner/forecast.py).

    rates.json   {"version": 1, "memory": {"THREADS": bytes_s}, "disks": {"SOURCE TYPE": bytes_s}}

The newest measurement counts: memory and disks are shared with others, and a model meets them as they are (the best of
many minutes, 51 GB/s, foretold half as much again as 33 GB/s gave).
"""

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from appliance.machine import disk
from engine.budget import ASSUMED_MEMORY, Machine, Rate
from engine.errors import UsageError

NAME = "rates.json"
VERSION = 1
MOST_BYTES = 1 << 20
# Bytes per second where nothing was measured. A gigabit line carries 110 MB/s.
ASSUMED = {"solid": 500e6, "rotating": 120e6, "network": 100e6, "memory": 2e9, "unknown": 500e6}
LEAST, MOST = 1e5, 1e13


def with_rates(machine: Machine, path: Path, data_dir: Path, threads: int, root: Path = Path("/")) -> Machine:
    """The machine with what is known of its memory and of the disk that holds `path`."""
    kept, kind = _read(data_dir), disk.disk_kind(path, root)
    memory, read = kept["memory"].get(str(threads)), kept["disks"].get(disk.disk_name(path, root))
    if read is not None:
        disk_rate = Rate(read, "large reads past the page cache, measured by colibri plan --measure", "measured")
    else:
        what = {"solid": "an SSD", "unknown": "a disk nobody tells the kind of"}.get(kind, f"a {kind} disk")
        disk_rate = Rate(ASSUMED[kind], f"assumed of {what}; --measure measures it")
    memory_rate = ASSUMED_MEMORY
    if memory is not None:
        memory_rate = Rate(memory, f"{threads} threads that only read, measured by colibri plan --measure", "measured")
    return replace(machine, memory_rate=memory_rate, disk_rate=disk_rate, disk_kind=kind)


def keep(data_dir: Path, *, memory: tuple[int, float] | None = None, read: tuple[Path, float] | None = None) -> None:
    """Note (threads, bytes per second) of memory and (a file, bytes per second) of its disk."""
    kept = _read(data_dir)
    if memory is not None:
        kept["memory"][str(memory[0])] = memory[1]
    if read is not None and (name := disk.disk_name(read[0])):
        kept["disks"][name] = read[1]
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=data_dir, prefix=f".{NAME}", delete=False) as file:
            json.dump({"version": VERSION, **kept}, file)
        os.replace(file.name, data_dir / NAME)
    except OSError as error:
        reason = (error.strerror or "it fails").lower()
        raise UsageError(
            f"what was measured cannot be kept in {data_dir} ({reason}); name another folder in COLIBRI_DATA_DIR"
        ) from error


def _read(data_dir: Path) -> dict[str, dict[str, float]]:
    """The kept figures; what is odd counts as not measured."""
    try:
        with open(os.open(data_dir / NAME, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as file:
            found = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError):
        found = {}
    if not isinstance(found, dict) or found.get("version") != VERSION:
        found = {}
    return {name: _figures(found.get(name)) for name in ("memory", "disks")}


def _figures(found: Any) -> dict[str, float]:
    if not isinstance(found, dict):
        return {}
    numbers = {key: value for key, value in found.items() if isinstance(value, int | float)}
    return {key: float(value) for key, value in numbers.items() if LEAST <= value <= MOST}
