"""Which kernel lines are shown, and what is said when none can be read."""

import os
import time
from pathlib import Path

import pytest

from tui.kernel import KernelLog, parse


@pytest.mark.parametrize("record,level,text", [
    ("3,812,5000000,-;Out of memory: Killed process 41 (python) total-vm:8k\n SUBSYSTEM=x", "error",
     "Out of memory: Killed process 41 (python) total-vm:8k"),
    ("4,1,5000000,-;CPU0: Core temperature above threshold, cpu clock throttled", "warning", None),
    ("6,1,5000000,c;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)", "info", None),
    ("3,9,5000000,-;blk_update_request: I/O error, dev sda, sector 9", "error", None),
])  # fmt: skip
def test_lines_about_memory_disks_and_heat(record: str, level: str, text: str | None) -> None:
    entry = parse(record, boot=1000.0)
    assert entry is not None and entry.source == "kernel"
    assert entry.level == level and entry.time == 1005.0
    assert text is None or entry.text == text


@pytest.mark.parametrize("record", [
    "6,1,1,-;usb 1-1: new device", "4,7,9,-; oom_kill_process.cold+0x8/0x8a", "", ";", "x,y,z;out of memory",
    "6;oom-kill",
])  # fmt: skip
def test_other_lines_are_left_out(record: str) -> None:
    assert parse(record, 0.0) is None


def test_records_of_a_device_come_once(tmp_path: Path) -> None:
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    log = KernelLog(str(fifo))
    assert log.read() == []
    with open(fifo, "w") as device:
        device.write("3,1,1000000,-;Out of memory: Killed process 7 (x)")
        device.flush()
        found = log.read()
        assert [entry.text for entry in found] == ["Out of memory: Killed process 7 (x)"]
        assert abs(found[0].time - (time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + 1)) < 60
        assert log.read() == []
    log.close()


def test_a_missing_device_and_one_that_is_not_allowed_are_told(tmp_path: Path) -> None:
    log = KernelLog(str(tmp_path / "none"))
    assert log.read() == [] and "is not here" in log.fault
    closed = tmp_path / "closed"
    closed.write_text("")
    closed.chmod(0)
    log = KernelLog(str(closed))
    assert log.read() == []
    assert "may not read" in log.fault or os.geteuid() == 0
