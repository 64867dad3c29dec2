"""Machines that other programs misread, sixteen of them: memory and threads that come out. Not here: single rules
(test_host.py).

Each is a tree as the kernel shows it to a process that cannot see its mounts, laid into a folder.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from appliance.machine.host import read_machine, thread_choice
from tests.appliance.machine.test_host import UNLIMITED_V1, lay

GIB = 1 << 30
MIB = 1 << 20
V2 = {"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n"}


def meminfo(**kib: int) -> str:
    return "".join(f"{name}: {value} kB\n" for name, value in kib.items())


USUAL = meminfo(MemTotal=33554432, MemFree=25165824, MemAvailable=29360128, Buffers=102400, Cached=3145728,
                SwapTotal=0, SwapFree=0)  # fmt: skip
FULL_OF_CACHE = meminfo(MemTotal=33554432, MemFree=3040870, MemAvailable=26214400, Buffers=102400, Cached=23068672)
NO_AVAILABLE = meminfo(MemTotal=33554432, MemFree=3145728, Buffers=102400, Cached=23068672, SReclaimable=204800,
                       Shmem=102400)  # fmt: skip


def cpus(siblings: Mapping[int, str], max_khz: Mapping[int, int] | None = None) -> dict[str, str]:
    """CPUs by the list of their core's threads."""
    base = "sys/devices/system/cpu"
    tree = {f"{base}/cpu{cpu}/topology/thread_siblings_list": text + "\n" for cpu, text in siblings.items()}
    tree |= {f"{base}/cpu{cpu}/cpufreq/cpuinfo_max_freq": f"{khz}\n" for cpu, khz in (max_khz or {}).items()}
    return tree | {f"{base}/online": f"0-{len(siblings) - 1}\n"}


SMT = cpus({cpu: f"{cpu & ~1},{cpu | 1}" for cpu in range(16)}, dict.fromkeys(range(16), 4700000))
SMT_APART = cpus({cpu: f"{cpu % 8},{cpu % 8 + 8}" for cpu in range(16)})
SPEEDS = [5200000] * 4 + [3800000] * 4
HYBRID = cpus({cpu: str(cpu) for cpu in range(8)}, dict(enumerate(SPEEDS))) | {
    f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity": f"{1024 if cpu < 4 else 600}\n" for cpu in range(8)
}


class Case(NamedTuple):
    threads: int
    memory_gib: float
    tree: dict[str, str]
    group: str = "0::/\n"
    info: str = USUAL


def v2(**files: str) -> dict[str, str]:
    return SMT | V2 | {f"sys/fs/cgroup/{name.replace('__', '.')}": text for name, text in files.items()}


CASES = {
    "no limits, two threads a core": Case(8, 28, SMT | V2),
    "sibling numbers far apart": Case(8, 28, SMT_APART | V2),
    "a quota of 4 CPUs": Case(4, 28, v2(cpu__max="400000 100000\n")),
    "a quota of 7.65 CPUs": Case(7, 28, v2(cpu__max="765000 100000\n")),
    "a quota of half a CPU": Case(1, 28, v2(cpu__max="50000 100000\n")),
    "a parent's quota": Case(2, 28, SMT | V2 | {
        "sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpu.max": "200000 100000\n"}, "0::/a/b\n"),
    "a cpuset of two whole cores": Case(2, 28, v2(cpu__max="max 100000\n", cpuset__cpus__effective="0-3\n")),
    "version 1, quota and memory": Case(3, 6442450944 / GIB - 100 / 1024, SMT | {
        "sys/fs/cgroup/cpu/d/cpu.cfs_quota_us": "300000\n", "sys/fs/cgroup/cpu/d/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/d/memory.limit_in_bytes": f"{6 * GIB}\n",
        "sys/fs/cgroup/memory/d/memory.usage_in_bytes": f"{100 * MIB}\n"}, "4:memory:/d\n3:cpu,cpuacct:/d\n"),
    "version 1 writes a number for no limit": Case(8, 28, SMT | {
        "sys/fs/cgroup/memory/d/memory.limit_in_bytes": UNLIMITED_V1}, "4:memory:/d\n"),
    "a container of 4 GiB": Case(8, 4 - 250 / 1024, v2(
        memory__max=f"{4 * GIB}\n", memory__current=f"{300 * MIB}\n",
        memory__stat=f"anon {250 * MIB}\nfile {50 * MIB}\ninactive_file {40 * MIB}\n")),
    "a container full of its model's file": Case(8, 3.8, v2(
        memory__max=f"{4 * GIB}\n", memory__current="4187593113\n",
        memory__stat="anon 209715200\nfile 3972844748\ninactive_file 3865470566\nactive_file 107374182\nshmem 0\n")),
    "memory.high below memory.max": Case(8, 3 - 100 / 1024, v2(
        memory__max=f"{4 * GIB}\n", memory__high=f"{3 * GIB}\n", memory__current=f"{100 * MIB}\n")),
    "a host full of file cache": Case(8, 25, SMT | V2, info=FULL_OF_CACHE),
    "a kernel without MemAvailable": Case(8, 25.2, SMT | V2, info=NO_AVAILABLE),
    "fast and slow cores": Case(4, 28, HYBRID | V2),
}  # fmt: skip


def lay_case(root: Path, case: Case) -> Path:
    return lay(root, case.tree | {"proc/self/cgroup": case.group, "proc/meminfo": case.info})


@pytest.mark.parametrize("name", CASES)
def test_memory_and_threads_come_out_right(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    machine = read_machine(lay_case(tmp_path, case))
    assert thread_choice(machine).value == case.threads
    assert machine.memory_available / GIB == pytest.approx(case.memory_gib, abs=0.01)


def test_without_any_topology_each_allowed_cpu_is_a_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 3, 4})
    machine = read_machine(lay_case(tmp_path, Case(3, 28, V2)))
    assert (machine.cpu_mask, machine.physical_cores, machine.slow_cores) == ((0, 3, 4), 3, 0)


def test_the_binding_limit_is_named(tmp_path: Path) -> None:
    small = read_machine(lay_case(tmp_path / "a", CASES["a container of 4 GiB"]))
    assert small.memory_reason == "min(container limit 4.00 GiB less 250 MiB in use, available 28.00 GiB)"
    free = read_machine(lay_case(tmp_path / "b", CASES["a host full of file cache"]))
    assert free.memory_reason == "available 25.00 GiB, file cache included"
    hybrid = read_machine(lay_case(tmp_path / "c", CASES["fast and slow cores"]))
    assert "without 4 slow ones" in thread_choice(hybrid).reason


def test_dirty_and_locked_pages_are_not_there_for_the_taking(tmp_path: Path) -> None:
    tree = v2(
        memory__max=f"{4 * GIB}\n", memory__current=f"{3 * GIB}\n",
        memory__stat=f"anon 0\nfile {3 * GIB}\nactive_file {GIB // 2}\ninactive_file {GIB // 2}\n"
        f"unevictable {2 * GIB}\nfile_dirty {GIB // 8}\nfile_writeback {GIB // 8}\n",
    )  # fmt: skip
    assert read_machine(lay_case(tmp_path, Case(8, 0, tree))).memory_available == GIB + GIB * 3 // 4


def test_favoured_cores_of_one_kind_are_all_fast(tmp_path: Path) -> None:
    tree = cpus({cpu: str(cpu) for cpu in range(8)}, {cpu: 5880000 if cpu < 2 else 5300000 for cpu in range(8)})
    assert read_machine(lay_case(tmp_path, Case(8, 28, tree | V2))).physical_cores == 8
