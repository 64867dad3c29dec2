"""A control group that limits memory, for figures of a model in less than it would like. Needs root. Not here: figures.

The page cache counts in a group as it does in a container with mem_limit; it is dropped first, so that a file is cold.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
DROP = Path("/proc/sys/vm/drop_caches")
SAMPLE_S = 0.05


class Group:
    """A group of `n_bytes`; `argv` runs a command in it."""

    def __init__(self, folder: Path, n_bytes: int) -> None:
        self.folder = folder
        name = "memory.limit_in_bytes" if (folder / "memory.limit_in_bytes").exists() else "memory.max"
        (folder / name).write_text(str(n_bytes // 4096 * 4096))
        with suppress(OSError):
            (folder / "memory.swap.max").write_text("0")

    def argv(self, command: Sequence[str]) -> list[str]:
        return ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(self.folder), *command]

    @property
    def kills(self) -> int:
        """Processes that the kernel killed in it for want of memory."""
        for name in ("memory.events", "memory.oom_control"):
            with suppress(OSError):
                found = re.search(r"^oom_kill (\d+)$", (self.folder / name).read_text(), re.M)
                return int(found[1]) if found else 0
        return 0


@contextmanager
def group(n_bytes: int) -> Iterator[Group]:
    """One of our own below the root's, gone afterwards."""
    os.sync()
    DROP.write_text("3\n")
    folder = (V1 if V1.is_dir() else V2) / f"colibri-bench-{os.getpid()}"
    folder.mkdir()
    try:
        yield Group(folder, n_bytes)
    finally:
        for _ in range(50):  # the kernel needs a moment to see that it is empty
            with suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.1)


class PrivatePeak(threading.Thread):
    """The most anonymous and locked memory of a process and its children, looked at 20 times a second until `stop`."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.n_bytes = pid, 0
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self.n_bytes = max(self.n_bytes, sum(_private(pid) for pid in _family(self.pid)))

    def stop(self) -> int:
        self._ended.set()
        self.join()
        return self.n_bytes


def run_child(module: str, way: dict[str, Any], limit: int | None) -> dict[str, Any]:
    """What `python -m module --child WAY` prints last, as JSON; in a group of `limit` bytes, if there is one, with
    `private_bytes` at its peak and `kills`. SystemExit when it does not end well."""
    argv = [sys.executable, "-m", module, "--child", json.dumps(way)]
    if limit is None:
        return dict(json.loads(subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout))
    with group(limit) as limited:
        process = subprocess.Popen(limited.argv(argv), stdout=subprocess.PIPE, text=True)
        peak = PrivatePeak(process.pid)
        out, _ = process.communicate()
        private, kills = peak.stop(), limited.kills
    if process.returncode:
        raise SystemExit(f"{way}: exit code {process.returncode}, {kills} killed")
    return json.loads(out.splitlines()[-1]) | {"private_bytes": private, "kills": kills}


def _private(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return 1024 * sum(int(kb) for kb in re.findall(r"^(?:RssAnon|VmLck):\s+(\d+) kB", text, re.M))


def _family(pid: int) -> list[int]:
    """Without children that still run their parent's program: they borrow its memory until they start their own."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        children = []
    mine = _command(pid)
    return [pid, *(one for child in children if _command(child) != mine for one in _family(int(child)))]


def _command(pid: int | str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
