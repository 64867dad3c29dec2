"""The disk that holds a file: what kind it is, and how fast it gives up large blocks. Not here: keeping the figure
(rates.py), what follows from it (engine/planner).
"""

import mmap
import os
import re
import threading
import time
from pathlib import Path

from appliance.machine.kernel_files import number, read_text

NETWORKS = {"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs", "fuse.s3fs", "fuse.rclone", "afs"}
BLOCK = 4 << 20
READERS = 4
PROBE_S = 0.4
SPREAD = 16


def disk_kind(path: Path, root: Path = Path("/")) -> str:
    """solid, rotating, network, memory, or unknown: overlays, and virtual disks, behind which anything may be."""
    try:
        device = os.stat(path).st_dev
    except OSError:
        return "unknown"
    kind = _file_system(device, root)
    if kind in NETWORKS:
        return "network"
    if kind in ("tmpfs", "ramfs"):
        return "memory"
    turns = is_rotating(device, root)
    return "unknown" if turns is None else "rotating" if turns else "solid"


def disk_name(path: Path, root: Path = Path("/")) -> str:
    """What names the disk over restarts: source and type of its mount; "" when that is not told."""
    try:
        device = os.stat(path).st_dev
    except OSError:
        return ""
    found = _mount(device, root)
    return f"{found[1]} {found[0]}" if found else ""


def is_rotating(device: int, root: Path = Path("/")) -> bool | None:
    """Whether a disk turns, by a file's `st_dev`; None for what is no disk of ours (overlays, networks) and for virtual
    disks, which say "yes" whatever is behind them."""
    folder = root / f"sys/dev/block/{os.major(device)}:{os.minor(device)}"
    if "/virtio" in os.path.realpath(folder):
        return None
    for place in ("queue/rotational", "../queue/rotational"):  # a partition's queue is its disk's
        if (told := number(folder / place)) is not None:
            return told == 1
    return None


def read_bytes_s(path: Path, seconds: float = PROBE_S) -> float | None:
    """Bytes per second of READERS that read the file in blocks past the page cache, as a stream does; None where the
    file system has no such reads, or the file is too small to tell."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:
        return None
    try:
        blocks = os.fstat(fd).st_size // BLOCK
        return _rate(fd, blocks, seconds) if blocks >= SPREAD else None
    except OSError:
        return None
    finally:
        os.close(fd)


def _rate(fd: int, blocks: int, seconds: float) -> float | None:
    """Neighbouring blocks, from a different place of the file at each call: a disk's own cache must not be asked."""
    buffers = [mmap.mmap(-1, BLOCK) for _ in range(READERS)]
    first, lock, failed = time.time_ns() % blocks, threading.Lock(), threading.Event()
    counts = {"next": 0, "bytes": 0}
    start = time.perf_counter()

    def read(buffer: mmap.mmap) -> None:
        while time.perf_counter() - start < seconds and not failed.is_set():
            with lock:
                block = (first + counts["next"]) % blocks
                counts["next"] += 1
                if counts["next"] > blocks:
                    return
            try:
                n = os.preadv(fd, [buffer], block * BLOCK)
            except OSError:
                failed.set()
                return
            with lock:
                counts["bytes"] += n

    threads = [threading.Thread(target=read, args=(buffer,), daemon=True) for buffer in buffers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = time.perf_counter() - start
    return None if failed.is_set() or not counts["bytes"] else counts["bytes"] / took_s


def _file_system(device: int, root: Path) -> str:
    found = _mount(device, root)
    return found[0] if found else ""


def _mount(device: int, root: Path) -> tuple[str, str] | None:
    """Type and source of the mount with this device number."""
    number_ = f"{os.major(device)}:{os.minor(device)}"
    for line in read_text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, tail = left.split(), right.split()
        if len(fields) > 4 and len(tail) > 1 and fields[2] == number_:
            return tail[0], re.sub(r"[^\x21-\x7e]", "?", tail[1])[:200]
    return None
