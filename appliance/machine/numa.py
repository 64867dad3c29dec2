"""Words in front of the worker's command that decide on which memory nodes it lives; none where that changes nothing.

    off          nothing: the kernel gives memory from the node whose CPU asked first
    distribute   numactl --interleave=all: page by page over all nodes, so that every node's bandwidth is used
    isolate      numactl --cpunodebind=N --membind=N: one node, the one with most room; nothing crosses the link
    numactl      nothing: whoever started the service has placed it, and the worker inherits that

numactl becomes the worker (exec), so the process id stays that of the one who was started. A refusal costs speed, not
service: the worker starts without, and the reason says so. Not here: the nodes' table (cli/host.py), threads per node.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from appliance.machine.kernel_files import cpu_list, read_text

PROBE_S = 5.0
_AS_IT_IS = {
    "off": "asked for nothing",
    "numactl": "taken as whoever started the service has placed it",
}


class Placed(NamedTuple):
    """What goes in front of the worker's command, and why that or nothing."""

    argv: tuple[str, ...]
    reason: str


class Node(NamedTuple):
    """A memory node that this process may use: its CPUs within our mask; `room` is what is free or only page cache."""

    number: int
    cpus: tuple[int, ...]
    room: int


def prefix(
    policy: str,
    root: Path = Path("/"),
    which: Callable[[str], str | None] = shutil.which,
    leaving: int | None = None,
) -> Placed:
    """The words for `policy` on the machine below `root`. `leaving` is a worker that ends first: its pages count as
    room, or two nodes would be taken in turns."""
    if policy in _AS_IT_IS:
        return Placed((), _AS_IT_IS[policy])
    found = nodes(root, leaving)
    if len(found) < 2:
        return Placed((), "this machine has one memory node for us, so there is nothing to place")
    program = which("numactl")
    if program is None:
        return Placed((), "numactl is not installed; the worker starts without it (Debian: apt install numactl)")
    if policy == "distribute":
        words: tuple[str, ...] = ("--interleave=all",)
        reason = f"memory in turns from {len(found)} nodes"
    else:
        with_cpus = [node for node in found if node.cpus]
        if not with_cpus:
            return Placed((), "no memory node has a CPU that this process may use")
        best = max(with_cpus, key=lambda node: (node.room, -node.number))
        words = (f"--cpunodebind={best.number}", f"--membind={best.number}")
        reason = f"node {best.number} has most room, {best.room / 2**30:.1f} GiB, and {len(best.cpus)} CPUs"
    refusal = _probe((program, *words))
    if refusal:
        return Placed((), f"the kernel does not allow it here ({refusal}); the worker starts without")
    return Placed((program, *words), reason)


def bound_to(placed: tuple[str, ...], root: Path = Path("/"), leaving: int | None = None) -> Node | None:
    """The one node that is left to a worker behind these words; None where they leave it all."""
    number = next((word.partition("=")[2] for word in placed if word.startswith("--cpunodebind=")), None)
    return next((node for node in nodes(root, leaving) if str(node.number) == number), None)


def nodes(root: Path, leaving: int | None = None) -> list[Node]:
    """The nodes with memory that cpuset and affinity leave us, by number."""
    status = read_text(root / "proc/self/status")
    mems, cpus = _listed(status, "Mems_allowed_list"), _listed(status, "Cpus_allowed_list")
    back = _pages_of(root, leaving)
    found = []
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        number = int(folder.name[4:])
        facts = {name: int(kb) * 1024 for name, kb in re.findall(r"(\S+):\s+(\d+) kB", read_text(folder / "meminfo"))}
        if not facts.get("MemTotal") or (mems is not None and number not in mems):
            continue
        cache = max(0, facts.get("FilePages", 0) - facts.get("Shmem", 0))
        room = facts.get("MemFree", 0) + cache + back.get(number, 0)
        here = cpu_list(read_text(folder / "cpulist").strip())
        found.append(Node(number, tuple(c for c in here if cpus is None or c in cpus), room))
    return sorted(found)


def _pages_of(root: Path, pid: int | None) -> dict[int, int]:
    """Bytes of a process's own pages per node; pages of files are room already."""
    found: dict[int, int] = {}
    for line in read_text(root / f"proc/{pid}/numa_maps").splitlines() if pid is not None else ():
        if "anon=" not in line:
            continue
        size = re.search(r"kernelpagesize_kB=(\d+)", line)
        for node, pages in re.findall(r"\bN(\d+)=(\d+)", line):
            found[int(node)] = found.get(int(node), 0) + int(pages) * (int(size[1]) if size else 4) * 1024
    return found


def _probe(words: tuple[str, ...]) -> str:
    """What numactl says when it may not; empty when it may. A container may lack the call, a cpuset the node."""
    try:
        done = subprocess.run([*words, "true"], capture_output=True, text=True, errors="replace", timeout=PROBE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"numactl does not run: {getattr(error, 'strerror', None) or 'no answer'}"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return "" if done.returncode == 0 else (lines[0][:120] if lines else f"exit code {done.returncode}")


def _listed(status: str, name: str) -> frozenset[int] | None:
    found = re.search(rf"^{name}:\s*(\S+)", status, re.M)
    return frozenset(cpu_list(found[1])) if found else None
