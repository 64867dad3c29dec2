"""This machine's memory, read here and now: live numbers while there is no link. Not here: the service's own facts.

They are worth something only when the service runs on this machine; two machines hardly have the same memory to the
byte, so that is the question asked. A tunnel to another machine's service is told apart that way.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from tui.snap import Facts, Snap

MEMINFO = Path("/proc/meminfo")
NAMES = {"MemTotal": "total", "MemFree": "free", "MemAvailable": "available", "SwapTotal": "swap_total"}


def machine(file: Path = MEMINFO) -> dict[str, Any]:
    """The memory of this machine as /admin/state words it; empty where /proc does not tell."""
    try:
        rows = re.findall(r"^(\w+):\s+(\d+) kB", file.read_text(), re.M)
    except OSError:
        return {}
    info = {name: int(kb) * 1024 for name, kb in rows}
    if not info.get("MemTotal"):
        return {}
    found: dict[str, Any] = {word: info[name] for name, word in NAMES.items() if name in info}
    found["cached"] = sum(info.get(name, 0) for name in ("Cached", "Buffers", "SReclaimable"))
    found["swap_used"] = info.get("SwapTotal", 0) - info.get("SwapFree", 0)
    return found


def is_here(snap: Snap, file: Path = MEMINFO) -> bool:
    """Whether the service runs on this machine, as far as its last answer tells."""
    return bool(total := snap.num("memory.machine.total")) and machine(file).get("total") == total


def alive(snap: Snap, file: Path = MEMINFO) -> Snap | None:
    """The snapshot with this machine's memory in place of the old one; None when it is another machine's."""
    if not is_here(snap, file):
        return None
    return Snap(Facts({"memory": {"machine": machine(file)}}), replace(snap.link, is_up=True), now=snap.link.at or 0.0)
