"""The peak of private memory: what counts, and that a short-lived block of memory is seen."""

import mmap
import time
from pathlib import Path

from appliance.machine.peak import EVERY_S, Peak, private_bytes
from tests.appliance.machine.test_host import lay

MIB = 1 << 20


def test_anonymous_swapped_and_locked_memory_counts_and_file_pages_do_not(tmp_path: Path) -> None:
    text = "Name:\tx\nVmHWM:\t 900 kB\nVmLck:\t 7 kB\nRssAnon:\t 100 kB\nRssFile:\t 800 kB\nVmSwap:\t 30 kB\n"
    root = lay(tmp_path, {"proc/41/status": text})
    assert private_bytes(root, "41") == 137 * 1024
    assert private_bytes(root, "42") == 0


def test_memory_that_is_given_back_again_was_the_peak() -> None:
    with Peak() as peak:
        before = peak.n_bytes
        block = mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for i in range(0, 64 * MIB, 4096):
            block[i] = 1
        until = time.monotonic() + 20 * EVERY_S
        while peak.n_bytes < before + 60 * MIB and time.monotonic() < until:
            time.sleep(EVERY_S / 5)
        block.close()
    assert peak.n_bytes >= before + 60 * MIB > private_bytes() - 4 * MIB
