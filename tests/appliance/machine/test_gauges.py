"""The machine's moving numbers, from files of machines laid into a folder, and from this one."""

import os
import threading
from pathlib import Path

import pytest

from appliance.machine.gauges import STALE_S, Gauges, Reading, memory
from tests.appliance.machine.test_host import GIB, box, cgroup2, lay

PID = 41
MEMINFO = """MemTotal:       65000000 kB
MemFree:        30000000 kB
MemAvailable:   50000000 kB
Buffers:          500000 kB
Cached:         20000000 kB
SwapTotal:       8000000 kB
SwapFree:        7900000 kB
Shmem:           1000000 kB
SReclaimable:     700000 kB
"""


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def process(root: Path, faults: int, read_bytes: int, pid: int = PID) -> None:
    lay(root, {
        f"proc/{pid}/stat": f"{pid} (a (b) c) S 1 1 1 0 -1 4194560 100 7 {faults} 0 5 6 0 0 20\n",
        f"proc/{pid}/io": f"rchar: 9\nwchar: 9\nread_bytes: {read_bytes}\nwrite_bytes: 7\n",
    })  # fmt: skip


def look(root: Path, clock: Clock, n: int = 1) -> Gauges:
    gauges = Gauges(root, root=root, clock=clock)
    for _ in range(n):
        gauges.read(PID)
        clock.now += 2.0
    return gauges


def test_memory_is_split_as_the_kernel_tells_it(tmp_path: Path) -> None:
    root = lay(tmp_path, {"proc/meminfo": MEMINFO})
    assert memory(root) == {
        "total": 65_000_000 << 10, "available": 50_000_000 << 10, "free": 30_000_000 << 10,
        "cached": 20_200_000 << 10, "limit": None, "limit_used": None, "swap_total": 8_000_000 << 10,
        "swap_used": 100_000 << 10,
    }  # fmt: skip


def test_a_containers_limit_is_the_level_with_the_least_room(tmp_path: Path) -> None:
    root = box(tmp_path, **cgroup2("/a/b"))
    lay(root / "sys/fs/cgroup", {
        "a/memory.max": f"{6 * GIB}\n", "a/memory.current": f"{5 * GIB}\n", "a/memory.stat": f"file {GIB}\nshmem 0\n",
        "a/b/memory.max": f"{4 * GIB}\n", "a/b/memory.current": f"{GIB}\n", "a/b/memory.stat": "file 0\n",
    })  # fmt: skip
    found = memory(root)
    assert (found["limit"], found["limit_used"]) == (6 * GIB, 4 * GIB)


def test_a_machine_that_tells_nothing_gives_no_numbers_and_no_error(tmp_path: Path) -> None:
    reading = look(tmp_path, Clock(), 2).read(PID)
    assert set(reading.machine.values()) == {None}
    assert (reading.major_faults_s, reading.disk_read_s, reading.load1, reading.swappiness) == (None,) * 4
    assert (reading.temp_c, reading.throttled, reading.quota) == (None, None, None)
    assert [(n.node, n.util, n.mhz, n.governor) for n in reading.nodes] == [(0, None, None, None)]


@pytest.mark.parametrize("text", ["\0\0\0", "MemTotal: x kB\n", "9" * 25, "\udcff"])
def test_odd_files_are_no_error(tmp_path: Path, text: str) -> None:
    names = (
        "proc/meminfo", "proc/stat", "proc/loadavg", "proc/cpuinfo", "proc/41/stat", "proc/41/io",
        "proc/sys/vm/swappiness", "sys/devices/system/node/node0/cpulist", "sys/class/thermal/thermal_zone0/temp",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq",
    )  # fmt: skip
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode(errors="surrogateescape"))
    look(tmp_path, Clock(), 2).read(PID)


def test_faults_and_reads_are_rates_between_two_looks(tmp_path: Path) -> None:
    clock = Clock()
    process(tmp_path, 100, 5_000_000)
    gauges = look(tmp_path, clock)
    process(tmp_path, 150, 9_000_000)
    reading = gauges.read(PID)
    assert (reading.major_faults_s, reading.disk_read_s) == (25.0, 2_000_000.0)


def test_another_process_or_a_long_pause_begins_anew(tmp_path: Path) -> None:
    clock = Clock()
    process(tmp_path, 100, 5_000_000)
    process(tmp_path, 9, 9, pid=42)
    gauges = look(tmp_path, clock)
    assert gauges.read(42).major_faults_s is None
    clock.now += STALE_S + 1
    assert gauges.read(42).major_faults_s is None
    clock.now += 2
    assert gauges.read(42).major_faults_s == 0.0
    assert gauges.read(None).major_faults_s is None


def test_within_a_second_the_files_are_read_once(tmp_path: Path) -> None:
    clock = Clock()
    process(tmp_path, 0, 0)
    gauges = look(tmp_path, clock)
    first = gauges.read(PID)
    process(tmp_path, 1000, 0)
    clock.now += 0.9
    assert gauges.read(PID) is first
    clock.now += 0.2
    assert gauges.read(PID).major_faults_s == pytest.approx(1000 / 1.1, rel=0.01)


def stat(busy: dict[int, tuple[int, int]]) -> dict[str, str]:
    rows = [f"cpu{cpu} {work} 0 0 {idle} 0 0 0 0 0 0" for cpu, (work, idle) in busy.items()]
    return {"proc/stat": "\n".join(["cpu  9 9 9 9", *rows, "intr 5"]) + "\n"}


def test_each_node_has_its_own_load_clock_and_governor(tmp_path: Path) -> None:
    cpu = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_{}"
    root = lay(tmp_path, {
        "sys/devices/system/node/node0/cpulist": "0-1\n", "sys/devices/system/node/node1/cpulist": "2-3\n",
        "sys/devices/system/node/node2/cpulist": "\n",
        **stat({0: (100, 100), 1: (100, 100), 2: (50, 50), 3: (0, 0)}),
        **{cpu.format(n, "cur_freq"): f"{khz}\n" for n, khz in enumerate((2_900_000, 3_100_000, 800_000, 800_000))},
        **{cpu.format(n, "governor"): f"{word}\n" for n, word in enumerate(["performance"] * 3 + ["powersave"])},
    })  # fmt: skip
    clock = Clock()
    gauges = look(root, clock)
    lay(root, stat({0: (190, 110), 1: (170, 130), 2: (52, 148), 3: (2, 98)}))
    assert [node.json() for node in gauges.read(PID).nodes] == [
        {"node": 0, "cpus": 2, "util": 0.8, "mhz": 3000, "governor": "performance"},
        {"node": 1, "cpus": 2, "util": 0.02, "mhz": 800, "governor": "powersave"},
    ]


def test_a_clock_without_control_is_read_from_cpuinfo(tmp_path: Path) -> None:
    rows = "processor\t: 0\ncpu MHz\t\t: 2600.1\n\nprocessor\t: 1\ncpu MHz\t\t: 2400.3\n"
    root = lay(tmp_path, {**stat({0: (1, 1), 1: (1, 1)}), "proc/cpuinfo": rows})
    node = look(root, Clock()).read(PID).nodes[0]
    assert (node.cpus, node.mhz, node.governor) == (2, 2500, None)


def test_the_cpus_own_hottest_sensor_counts(tmp_path: Path) -> None:
    root = lay(tmp_path, {
        "sys/class/thermal/thermal_zone0/type": "acpitz\n", "sys/class/thermal/thermal_zone0/temp": "99000\n",
        "sys/class/thermal/thermal_zone1/type": "x86_pkg_temp\n", "sys/class/thermal/thermal_zone1/temp": "71000\n",
        "sys/class/hwmon/hwmon3/name": "coretemp\n", "sys/class/hwmon/hwmon3/temp1_input": "73500\n",
        "sys/class/hwmon/hwmon3/temp2_input": "-128000\n", "sys/class/hwmon/hwmon4/name": "nvme\n",
        "sys/class/hwmon/hwmon4/temp1_input": "80000\n",
    })  # fmt: skip
    assert look(root, Clock()).read(PID).temp_c == 73.5


def test_a_throttle_is_news_for_a_minute(tmp_path: Path) -> None:
    name = "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"
    clock = Clock()
    lay(tmp_path, {name: "5\n"})
    gauges = look(tmp_path, clock)
    assert gauges.read(PID).throttled is False
    lay(tmp_path, {name: "6\n"})
    clock.now += 2
    assert gauges.read(PID).throttled is True
    clock.now += 58
    assert gauges.read(PID).throttled is True
    clock.now += 3
    assert gauges.read(PID).throttled is False


def test_this_machine_is_told_and_its_load_is_a_share() -> None:
    clock = Clock()
    gauges = Gauges(Path("/"), clock=clock)
    first = gauges.read(os.getpid())
    clock.now += 2
    second = gauges.read(os.getpid())
    with open("/proc/meminfo") as file:
        total = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemTotal"))
    assert first.machine["total"] == total
    assert second.major_faults_s is not None
    assert 1 <= second.cores <= sum(node.cpus for node in second.nodes)
    assert all(node.util is None or 0 <= node.util <= 1 for node in second.nodes)
    assert second.data_free is not None
    assert 0 < second.data_free <= (second.data_total or 0)


def test_many_threads_may_ask_at_once(tmp_path: Path) -> None:
    process(tmp_path, 0, 0)
    gauges = Gauges(tmp_path, root=tmp_path, clock=Clock())
    seen: list[Reading] = []
    threads = [threading.Thread(target=lambda: seen.append(gauges.read(PID))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(reading) for reading in seen}) == 1
