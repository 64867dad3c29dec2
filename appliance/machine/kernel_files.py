"""The small text files in which the kernel tells about the machine, read without ever failing. Not here: what they mean
(host.py, cgroups.py).
"""

import re
from pathlib import Path

# Version 1 of cgroups writes "no limit" as the largest page-aligned int64; nothing real is over 2^60.
NO_LIMIT = 1 << 60


def read_text(path: Path) -> str:
    """The whole file, "" when it is not there or not for us."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def number(path: Path) -> int | None:
    """The file's only number; None for words ("max"), nothing, and what means no limit."""
    text = read_text(path).strip()
    value = int(text) if re.fullmatch(r"-?\d{1,20}", text) else None
    return None if value is None or value >= NO_LIMIT else value


def pairs(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    rows = (line.split() for line in read_text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def meminfo(root: Path) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    rows = re.findall(r"^(\w+):\s+(\d+) kB", read_text(root / "proc/meminfo"), re.M)
    return {name: int(kb) * 1024 for name, kb in rows}


def cpu_list(text: str) -> tuple[int, ...]:
    """The kernel's list form, "0-2,5", as numbers; anything else is empty."""
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return ()
        cpus.update(range(int(first), min(int(last or first), int(first) + 65536) + 1))
    return tuple(sorted(cpus))
