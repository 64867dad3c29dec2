"""The machine a figure was taken on: its name, its description, whether it was quiet, and pinning. Not here: figures.

A figure without its machine and its load is worth nothing, so every benchmark starts here.
"""

import os
import platform
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BUSY_LIMIT = 0.05
# As this process began: a team pins the thread that runs it.
CPUS = sorted(os.sched_getaffinity(0))


def describe() -> dict[str, Any]:
    """CPU, cores, vector extensions, memory, kernel and governor, as the results file keeps them."""
    info = Path("/proc/cpuinfo").read_text()
    flags = set(_field(info, "flags").split())
    wanted = ("avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8")
    kib = int(_field(Path("/proc/meminfo").read_text(), "MemTotal").split()[0])
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return {
        "cpu": _field(info, "model name"),
        "family_model": f"{_field(info, 'cpu family')}/{_field(info, 'model')}",
        "cpus": len(CPUS),
        "isa": [flag for flag in wanted if flag in flags],
        "memory_gib": round(kib / 2**20, 1),
        "kernel": platform.release(),
        "governor": governor.read_text().strip() if governor.exists() else "unknown",
        "virtual": "hypervisor" in flags,
    }


def machine_name() -> str:
    """A file name made of the CPU: `amd-epyc-25-17-2cpu`."""
    this = describe()
    words = re.sub(r"\((r|tm)\)|processor|@.*", "", this["cpu"].lower())
    return "-".join(re.findall(r"[a-z0-9]+", f"{words} {this['family_model']}")) + f"-{this['cpus']}cpu"


def busy_share(seconds: float = 2.0) -> float:
    """The share of CPU time others used during `seconds`, over all CPUs, stolen time included: 0 is quiet."""
    total, idle = _cpu_ticks()
    time.sleep(seconds)
    total_after, idle_after = _cpu_ticks()
    return 1.0 - (idle_after - idle) / max(1, total_after - total)


def wait_for_quiet(patience_s: float, limit: float = BUSY_LIMIT) -> float:
    """Wait until the machine is quiet; returns the busy share last seen, over the limit when patience ran out."""
    end = time.monotonic() + patience_s
    share = busy_share()
    while share > limit and time.monotonic() < end:
        share = busy_share()
    return share


def pinned(n_threads: int) -> list[int]:
    """The first `n_threads` CPUs of the allowed mask: where every contender of a row runs."""
    if n_threads > len(CPUS):
        raise SystemExit(f"{n_threads} threads asked for, but this process may use {len(CPUS)} CPUs")
    return CPUS[:n_threads]


def pin_self(cpus: Sequence[int]) -> None:
    """For subprocess's preexec_fn: the child and all its threads stay on `cpus`."""
    os.sched_setaffinity(0, cpus)


def rss_anon(pid: int) -> int:
    """Anonymous resident bytes of one process: what it costs beyond files that others share."""
    return memory_of(pid, "RssAnon")


def memory_of(pid: int | str, name: str) -> int:
    """Bytes of a line of /proc/PID/status, such as VmRSS or its peak VmHWM."""
    return int(_field(Path(f"/proc/{pid}/status").read_text(), name).split()[0]) * 1024


def children(pid: int) -> list[int]:
    """All living descendants of a process."""
    found = [int(p) for task in Path(f"/proc/{pid}/task").iterdir() for p in (task / "children").read_text().split()]
    return found + [grandchild for child in found for grandchild in children(child)]


def _field(text: str, name: str) -> str:
    match = re.search(rf"^{re.escape(name)}\s*:\s*(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else "unknown"


def _cpu_ticks() -> tuple[int, int]:
    numbers = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return sum(numbers[:8]), numbers[3] + numbers[4]
