"""This machine's memory, and whether it is the service's machine."""

from pathlib import Path

import pytest

from tui import local
from tui.snap import Facts, Snap

MEMINFO = """MemTotal:       16000 kB
MemFree:         4000 kB
MemAvailable:    9000 kB
Buffers:          100 kB
Cached:          5000 kB
SReclaimable:     400 kB
SwapTotal:       2000 kB
SwapFree:        1500 kB
HugePages_Total:       0
"""


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    path = tmp_path / "meminfo"
    path.write_text(MEMINFO)
    return path


def told(total: object) -> Snap:
    return Snap(Facts({"memory": {"machine": {"total": total}}}))


def test_memory_in_the_words_of_the_service(meminfo: Path) -> None:
    assert local.machine(meminfo) == {
        "total": 16000 << 10, "free": 4000 << 10, "available": 9000 << 10, "swap_total": 2000 << 10,
        "cached": 5500 << 10, "swap_used": 500 << 10,
    }  # fmt: skip


def test_only_the_same_memory_to_the_byte_is_this_machine(meminfo: Path) -> None:
    assert local.is_here(told(16000 << 10), meminfo)
    for other in ((16000 << 10) + 1, 0, None, "16384000", True):
        assert not local.is_here(told(other), meminfo)
        assert local.alive(told(other), meminfo) is None
    alive = local.alive(told(16000 << 10), meminfo)
    assert alive is not None and alive.num("memory.machine.free") == 4000 << 10
    assert not alive.is_old


def test_no_proc_is_no_fault(tmp_path: Path) -> None:
    assert local.machine(tmp_path / "none") == {}
    (tmp_path / "odd").write_text("MemTotal: 0 kB\n")
    assert local.machine(tmp_path / "odd") == {} and not local.is_here(told(0), tmp_path / "odd")
