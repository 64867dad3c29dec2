"""Kernel lines that explain a slow or dead engine: out of memory, disks, heat. Not here: all other kernel lines.

/dev/kmsg gives one record a read, `6,1234,98765432,-;text`: level, number, microseconds since boot.
"""

import os
import re
import time
from contextlib import suppress

from tui.logbook import Entry

DEVICE = "/dev/kmsg"
MOST = 20_000  # records of a full ring buffer; a device that never ends must not hold the thread
WANTED = re.compile(
    r"out of memory|oom[-_ ]kill|killed process|memory cgroup|i/o error|ext4-fs error|xfs.*(error|corrupt)|"
    r"nvme.*(timeout|reset|abort)|ata\d.*(error|reset)|throttl|thermal|machine check|mce:|hardware error|"
    r"blocked for more than",
    re.I,
)


class KernelLog:
    """`read` gives the lines that have come since the last time; `fault` says why there are none."""

    def __init__(self, device: str = DEVICE) -> None:
        self._device = device
        self._file: int | None = None
        self.fault = ""

    def read(self) -> list[Entry]:
        if self._file is None:
            try:
                self._file = os.open(self._device, os.O_RDONLY | os.O_NONBLOCK)
            except PermissionError:
                self.fault = f"kernel: this user may not read {self._device} (kernel.dmesg_restrict); root may"
                return []
            except OSError:
                self.fault = f"kernel: {self._device} is not here; it is read on the host alone"
                return []
            self.fault = ""
        boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        entries = []
        for _ in range(MOST):
            try:
                record = os.read(self._file, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:  # records were overwritten before they were read
                continue
            except OSError:
                self.close()
                break
            if not record:
                break
            if entry := parse(record.decode("utf-8", "replace"), boot):
                entries.append(entry)
        return entries

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None


def parse(record: str, boot: float) -> Entry | None:
    """A record as an entry, when it is one of those that matter here."""
    head, _, text = record.partition(";")
    fields = head.split(",")
    text = text.split("\n")[0]
    if len(fields) < 3 or not fields[0].isdigit() or not fields[2].isdigit():
        return None
    if not WANTED.search(text) or "+0x" in text:  # a line of a stack trace names functions, no fault
        return None
    severity = int(fields[0]) & 7
    level = "error" if severity <= 3 else "warning" if severity == 4 else "info"
    return Entry(boot + int(fields[2]) / 1e6, level, "kernel", text)
