"""Memory pressure, from files of kernels that tell all, a part, or nonsense."""

from pathlib import Path

import pytest

from appliance.machine.pressure import Pressure, read_pressure
from tests.appliance.machine.test_host import box, cgroup2, lay

HOST = "some avg10=1.50 avg60=0.20 avg300=0.00 total=123\nfull avg10=0.25 avg60=0.00 avg300=0.00 total=9\n"
OURS = "some avg10=40.00 avg60=0.20 avg300=0.00 total=123\nfull avg10=12.50 avg60=0.00 avg300=0.00 total=9\n"


def test_our_own_group_counts_and_else_the_machine(tmp_path: Path) -> None:
    root = box(tmp_path, **cgroup2("/a/b"))
    lay(root, {"proc/pressure/memory": HOST, "proc/pressure/io": HOST})
    assert read_pressure(root) == Pressure(1.5, 0.25, 1.5, 0.25)
    lay(root / "sys/fs/cgroup", {"a/b/memory.pressure": OURS, "a/memory.pressure": HOST})
    assert read_pressure(root) == Pressure(40.0, 12.5, 1.5, 0.25)


def test_events_of_the_level_that_was_hit_most(tmp_path: Path) -> None:
    root = box(tmp_path, **cgroup2("/a/b"))
    lay(root / "sys/fs/cgroup", {
        "a/b/memory.events": "low 0\nhigh 3\nmax 0\noom 0\noom_kill 0\n",
        "a/memory.events": "low 0\nhigh 0\nmax 70\noom 2\noom_kill 1\n",
    })  # fmt: skip
    assert read_pressure(root) == Pressure(high=3, max=70, oom_kill=1)


@pytest.mark.parametrize("text", ["", "some avg10=x ", "full avg10=... total=1", "\0" * 9, "some avg10=1.2.3 avg60=1"])
def test_a_kernel_that_tells_nothing_or_nonsense_is_none(tmp_path: Path, text: str) -> None:
    assert read_pressure(tmp_path) == Pressure()
    lay(tmp_path, {"proc/pressure/memory": text, "proc/pressure/io": text})
    assert read_pressure(tmp_path) == Pressure()


def test_this_machine_is_read_without_a_fault() -> None:
    found = read_pressure()
    assert all(share is None or 0 <= share <= 100 for share in (found.memory_some, found.memory_full, found.io_some))
