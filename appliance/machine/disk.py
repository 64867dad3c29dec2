"""The disk that holds a file: what kind it is, and how fast it gives up large blocks. Not here: keeping the figure
(rates.py), what follows from it (engine/planner).
"""

import contextlib
import ctypes
import itertools
import mmap
import os
import re
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from appliance.machine.kernel_files import number, read_text

NETWORKS = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.ceph", "glusterfs", "fuse.glusterfs", "lustre",
    "beegfs", "fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.juicefs", "fuse.gcsfuse", "fuse.davfs2",
}
BLOCK = 4 << 20
READERS = 4
STRETCH = 512 << 20
PROBE_S = 0.6  # twice: the first pass does not count
SPREAD = 16
MOST_LAYERS = 8  # of block devices on each other


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
    disks, which say "yes" whatever is behind them. What lies on other disks (LVM, LUKS, RAID, loops) is what they are:
    the kernel hands a virtual disk's "yes" on."""
    return _turns(root / f"sys/dev/block/{os.major(device)}:{os.minor(device)}", root, MOST_LAYERS)


def _turns(folder: Path, root: Path, n_layers: int) -> bool | None:
    if "/virtio" in os.path.realpath(folder) or n_layers == 0:
        return None
    below = [_turns(folder / "slaves" / name, root, n_layers - 1) for name in _names(folder / "slaves")]
    if backing := read_text(folder / "loop/backing_file").strip():
        with contextlib.suppress(OSError):
            device = os.stat(root / backing.lstrip("/")).st_dev
            below.append(_turns(root / f"sys/dev/block/{os.major(device)}:{os.minor(device)}", root, n_layers - 1))
    if below:
        return None if None in below else any(below)
    for place in ("queue/rotational", "../queue/rotational"):  # a partition's queue is its disk's
        if (told := number(folder / place)) is not None:
            return told == 1
    return None


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


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


def _rate(fd: int, n_blocks: int, seconds: float) -> float | None:
    """Of a stretch that begins in a different place at each call: it is read once without counting, then again and
    again, as a stream reads the same bytes for every token. Behind a virtual disk that is faster than new bytes are."""
    first = time.time_ns() % n_blocks
    stretch = [(first + i) % n_blocks * BLOCK for i in range(min(n_blocks, STRETCH // BLOCK))]
    buffers = _buffers()
    _read(fd, stretch, buffers, seconds)
    start = time.perf_counter()
    n_bytes = _read(fd, itertools.cycle(stretch), buffers, seconds)
    return n_bytes / (time.perf_counter() - start) if n_bytes else None


def _read(fd: int, offsets: Iterable[int], buffers: Sequence[memoryview], seconds: float) -> int:
    """Bytes that one thread for each buffer reads from the offsets before the time is over; OSError as they meet it."""
    todo, lock, end = iter(offsets), threading.Lock(), time.perf_counter() + seconds
    counts: list[int] = []
    faults: list[OSError] = []

    def read(buffer: memoryview) -> None:
        while time.perf_counter() < end and not faults:
            with lock:
                offset = next(todo, None)
            if offset is None:
                return
            try:
                counts.append(os.preadv(fd, [buffer], offset))
            except OSError as error:
                faults.append(error)

    threads = [threading.Thread(target=read, args=(buffer,), daemon=True) for buffer in buffers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return sum(counts)


def _buffers() -> list[memoryview]:
    """One of BLOCK bytes for each reader, on huge pages as a stream's are: into small ones a disk gave 1.4 instead of
    2.5 GB/s."""
    area = mmap.mmap(-1, (READERS + 1) * BLOCK, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        area.madvise(mmap.MADV_HUGEPAGE)  # a kernel without them says no
    view = memoryview(area)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(area)) % BLOCK
    view[start : start + READERS * BLOCK : mmap.PAGESIZE] = bytes(READERS * BLOCK // mmap.PAGESIZE)
    return [view[start + i * BLOCK : start + (i + 1) * BLOCK] for i in range(READERS)]


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
