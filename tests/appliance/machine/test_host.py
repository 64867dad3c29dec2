"""The machine as read from files: other machines are laid into a folder. Not here: what the planner makes of it."""

import os
from pathlib import Path

import pytest

from appliance.machine.disk import is_rotating
from appliance.machine.host import read_machine, thread_choice
from appliance.machine.kernel_files import cpu_list
from engine.planner import Machine

GIB = 1 << 30
UNLIMITED_V1 = "9223372036854771712\n"


def lay(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def box(root: Path, *, cpus: str = "0-7", siblings: dict[int, str] | None = None, **files: str) -> Path:
    """A machine with 16 GiB, of which 8 are available, and one core per CPU unless `siblings` say otherwise."""
    base = {
        "proc/meminfo": f"MemTotal: {16 * GIB // 1024} kB\nMemAvailable: {8 * GIB // 1024} kB\nSwapFree: 1024 kB\n",
        "proc/self/status": f"Name:\tx\nCpus_allowed_list:\t{cpus}\n",
        "sys/devices/system/cpu/online": "0-7\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    }
    for cpu in range(8):
        text = (siblings or {}).get(cpu, str(cpu))
        base[f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"] = text + "\n"
    return lay(root, base | {name.replace("__", "/"): text for name, text in files.items()})


def cgroup2(path: str = "/", root: str = "/") -> dict[str, str]:
    return {
        "proc__self__cgroup": f"0::{path}\n",
        "proc__self__mountinfo": f"31 23 0:28 {root} /sys/fs/cgroup rw,relatime - cgroup2 cgroup rw\n",
    }


def test_a_bare_machine_has_no_limits(tmp_path: Path) -> None:
    machine = read_machine(box(tmp_path))
    assert (machine.memory_available, machine.memory_limit, machine.cpu_quota) == (8 * GIB, None, None)
    assert (machine.physical_cores, machine.cpu_mask) == (8, tuple(range(8)))
    assert (machine.thp, machine.swap) == ("madvise", 1 << 20)


def test_the_smallest_limit_on_the_way_to_the_root_counts(tmp_path: Path) -> None:
    root = box(tmp_path, **cgroup2("/a/b/c"))
    lay(root / "sys/fs/cgroup", {
        "a/memory.max": f"{4 * GIB}\n", "a/memory.current": "0\n", "a/cpu.max": "250000 100000\n",
        "a/b/memory.max": "max\n", "a/b/cpu.max": "max 100000\n",
        "a/b/c/memory.max": f"{6 * GIB}\n", "a/b/c/memory.current": "0\n", "a/b/c/cpu.max": "400000 100000\n",
    })  # fmt: skip
    machine = read_machine(root)
    assert (machine.memory_limit, machine.memory_available, machine.cpu_quota) == (4 * GIB, 4 * GIB, 2.5)


def test_page_cache_of_a_group_counts_as_available_and_shared_memory_does_not(tmp_path: Path) -> None:
    root = box(tmp_path, **cgroup2())
    lay(root / "sys/fs/cgroup", {
        "memory.max": f"{4 * GIB}\n", "memory.current": f"{3 * GIB}\n",
        "memory.stat": f"anon {GIB // 2}\nfile {2 * GIB + GIB // 2}\nshmem {GIB // 2}\nslab_reclaimable 0\n",
    })  # fmt: skip
    assert read_machine(root).memory_available == 3 * GIB


def test_memory_high_is_a_limit_too(tmp_path: Path) -> None:
    root = box(tmp_path, **cgroup2())
    lay(root / "sys/fs/cgroup", {"memory.max": "max\n", "memory.high": f"{2 * GIB}\n", "memory.current": "0\n"})
    assert read_machine(root).memory_limit == 2 * GIB


def test_version_1_hierarchies_are_read_each_at_its_own_path(tmp_path: Path) -> None:
    root = box(
        tmp_path,
        proc__self__cgroup="4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n",
        proc__self__mountinfo=(
            "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
            "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        ),
    )
    lay(root / "sys/fs/cgroup", {
        "memory/memory.limit_in_bytes": UNLIMITED_V1,
        "memory/docker/memory.limit_in_bytes": UNLIMITED_V1,
        "memory/docker/abc/memory.limit_in_bytes": f"{2 * GIB}\n",
        "memory/docker/abc/memory.usage_in_bytes": f"{GIB}\n",
        "memory/docker/abc/memory.stat": f"total_cache {GIB // 2}\ntotal_shmem 0\n",
        "cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "150000\n",
        "cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n",
        "cpu,cpuacct/docker/cpu.cfs_quota_us": "-1\n",
        "cpu,cpuacct/docker/cpu.cfs_period_us": "100000\n",
    })  # fmt: skip
    machine = read_machine(root)
    assert (machine.memory_limit, machine.cpu_quota) == (2 * GIB, 1.5)
    assert machine.memory_available == GIB + GIB // 2


def test_inside_a_container_the_mount_s_root_is_our_own_group(tmp_path: Path) -> None:
    root = box(
        tmp_path,
        proc__self__cgroup="4:memory:/docker/abc\n",
        proc__self__mountinfo="35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
    )
    lay(root / "sys/fs/cgroup/memory", {"memory.limit_in_bytes": f"{GIB}\n", "memory.usage_in_bytes": "0\n"})
    assert read_machine(root).memory_limit == GIB


def test_a_limit_above_a_container_of_version_1_is_told_by_its_own_group(tmp_path: Path) -> None:
    root = box(
        tmp_path,
        proc__self__cgroup="4:memory:/docker/abc\n",
        proc__self__mountinfo="35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
    )
    lay(root / "sys/fs/cgroup/memory", {
        "memory.limit_in_bytes": UNLIMITED_V1, "memory.usage_in_bytes": f"{GIB // 4}\n",
        "memory.stat": f"hierarchical_memory_limit {GIB}\n",
    })  # fmt: skip
    assert (read_machine(root).memory_limit, read_machine(root).memory_available) == (GIB, GIB * 3 // 4)


def test_a_path_outside_the_namespace_falls_back_to_the_mount_s_root(tmp_path: Path) -> None:
    root = box(tmp_path, **cgroup2("/../../elsewhere"))
    lay(root / "sys/fs/cgroup", {"memory.max": f"{GIB}\n", "memory.current": "0\n"})
    assert read_machine(root).memory_limit == GIB


def test_hyper_threads_of_a_core_count_once(tmp_path: Path) -> None:
    siblings = {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}
    assert read_machine(box(tmp_path, siblings=siblings)).physical_cores == 4


def test_a_mask_on_two_siblings_is_one_core(tmp_path: Path) -> None:
    siblings = {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}
    machine = read_machine(box(tmp_path, cpus="1,5", siblings=siblings))
    assert (machine.physical_cores, machine.cpu_mask) == (1, (1, 5))


def test_cpus_that_are_not_online_are_not_ours(tmp_path: Path) -> None:
    assert read_machine(box(tmp_path, cpus="0-63")).cpu_mask == tuple(range(8))


def test_rubbish_in_the_files_is_no_limit_and_no_crash(tmp_path: Path) -> None:
    root = box(tmp_path, **cgroup2())
    lay(root / "sys/fs/cgroup", {"memory.max": "lots\n", "cpu.max": "a b c\n", "memory.stat": "x\ny z\n"})
    lay(root, {"sys/kernel/mm/transparent_hugepage/enabled": "", "proc/self/cgroup": "0::/\nrubbish\n:::\n"})
    machine = read_machine(root)
    assert (machine.memory_limit, machine.cpu_quota, machine.thp) == (None, None, "unknown")


def test_this_very_machine_can_be_read() -> None:
    machine = read_machine()
    assert machine.memory_available > 0 and 1 <= machine.physical_cores <= len(machine.cpu_mask)


@pytest.mark.parametrize(
    ("cores", "quota", "tuned", "threads", "words"),
    [
        (8, None, None, 8, "physical cores"),
        (8, 6.5, None, 6, "quota is 6.5"),
        (2, 6.0, None, 2, "physical cores"),
        (4, 0.5, None, 1, "quota is 0.5"),
        (8, None, 5, 5, "measured"),
        (8, 3.0, 5, 3, "quota is 3"),
    ],
)
def test_threads_and_their_reason(cores: int, quota: float | None, tuned: int | None, threads: int, words: str) -> None:
    machine = Machine(GIB, None, cores, tuple(range(cores)), quota)
    choice = thread_choice(machine, tuned)
    assert choice.value == threads and words in choice.reason


def test_cpu_lists() -> None:
    assert cpu_list("0-2,5") == (0, 1, 2, 5)
    assert cpu_list("") == () and cpu_list("a-b") == () and cpu_list("3") == (3,)


@pytest.mark.parametrize(
    ("files", "rotating"),
    [
        ({"sys/dev/block/8:1/queue/rotational": "1\n"}, True),
        ({"sys/dev/block/8:1/partition": "1\n", "sys/dev/block/queue/rotational": "0\n"}, False),
        ({}, None),
    ],
)
def test_a_rotating_disk_is_known_by_its_queue(files: dict[str, str], rotating: bool | None, tmp_path: Path) -> None:
    assert is_rotating(os.makedev(8, 1), lay(tmp_path, files)) is rotating


def test_a_virtual_disk_s_word_is_not_believed(tmp_path: Path) -> None:
    lay(tmp_path, {"sys/devices/pci0/virtio1/block/vda/queue/rotational": "1\n", "sys/dev/block/x": ""})
    (tmp_path / "sys/dev/block/254:0").symlink_to("../../devices/pci0/virtio1/block/vda")
    assert is_rotating(os.makedev(254, 0), tmp_path) is None


def test_private_memory_of_our_processes_is_told_apart(tmp_path: Path) -> None:
    mine = "Name:\tx\nCpus_allowed_list:\t0-7\nRssAnon:\t   2048 kB\nRssFile:\t  9000 kB\n"
    root = box(tmp_path, proc__self__status=mine, proc__7__status="RssAnon:\t 1024 kB\n")
    assert read_machine(root).own_bytes == 2048 << 10
    assert read_machine(root, beside=(7, 8)).own_bytes == 3072 << 10, "a process that is gone has nothing"
