"""Processes as /proc shows them: who runs, and how much of a core they take. Not here: starting any."""

import os
import time
from collections.abc import Callable
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def wait_until(condition: Callable[[], object], within_s: float, what: str) -> None:
    """Ask again and again; AssertionError with `what` when it never came true."""
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, f"{what}: not within {within_s} s"
        time.sleep(0.05)


def programs(url: str) -> list[int]:
    """The terminal programs that watch the service at `url`, as their command lines say; everybody may read those."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            argv = (folder / "cmdline").read_bytes().split(b"\0")
            if argv[1:3] == [b"-m", b"tui"] and url.encode() in argv:
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def is_alive(pid: int) -> bool:
    """Whether it still runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def wait_idle(pid: int, within_s: float = 10) -> None:
    """Wait until a process that has just started takes less than a fifth of a core."""
    seen = [cpu_s(pid)]

    def is_idle() -> bool:
        time.sleep(0.4)
        seen.append(cpu_s(pid))
        return seen[-1] - seen[-2] < 0.08

    wait_until(is_idle, within_s, f"process {pid} at rest")


def leaving(pid: int, within_s: float) -> float:
    """Wait for a process's end; the share of a core that it took from now on until then."""
    began, first = time.monotonic(), cpu_s(pid)
    last = first
    while is_alive(pid):
        last = max(last, cpu_s(pid))
        assert time.monotonic() - began < within_s, f"process {pid} is still there after {within_s} s"
        time.sleep(0.02)
    return (last - first) / max(time.monotonic() - began, 0.5)
