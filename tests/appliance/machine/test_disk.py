"""Kinds of disks from a laid-out machine, and a real read past the page cache. Not here: keeping the figure."""

import os
from pathlib import Path

import pytest

from appliance.machine import disk


def lay(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def mounted(path: Path, kind: str, source: str = "/dev/sda1") -> dict[str, str]:
    """mountinfo of a machine on which `path` lies on a file system of that kind."""
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    return {"proc/self/mountinfo": f"22 1 0:99 / /proc rw - proc proc rw\n30 1 {number} / / rw - {kind} {source} rw\n"}


@pytest.mark.parametrize(("kind", "word"), [
    ("nfs4", "network"), ("cifs", "network"), ("fuse.sshfs", "network"), ("tmpfs", "memory"), ("ext4", "unknown"),
])  # fmt: skip
def test_the_file_system_tells_the_kind(tmp_path: Path, kind: str, word: str) -> None:
    root = tmp_path / "root"
    lay(root, mounted(tmp_path, kind))
    assert disk.disk_kind(tmp_path, root) == word
    assert disk.disk_name(tmp_path, root) == f"/dev/sda1 {kind}"


@pytest.mark.parametrize(("told", "word"), [("0", "solid"), ("1", "rotating")])
def test_a_local_disk_turns_or_not(tmp_path: Path, told: str, word: str) -> None:
    device = os.stat(tmp_path).st_dev
    queue = f"sys/dev/block/{os.major(device)}:{os.minor(device)}/queue/rotational"
    root = tmp_path / "root"
    lay(root, mounted(tmp_path, "ext4") | {queue: told})
    assert disk.disk_kind(tmp_path, root) == word


@pytest.mark.parametrize(("told", "word"), [
    ({"sda": "1"}, "rotating"), ({"sda": "0"}, "solid"), ({"sda": "0", "sdb": "1"}, "rotating"),
    ({"virtio0/vda": "1"}, "unknown"), ({"sda": "0", "virtio0/vda": "1"}, "unknown"),
])  # fmt: skip
def test_what_lies_on_other_disks_is_what_they_are(tmp_path: Path, told: dict[str, str], word: str) -> None:
    """Volumes on top hand on what is below, also the "yes" that a virtual disk says without knowing."""
    root, device = tmp_path / "root", os.stat(tmp_path).st_dev
    here = f"sys/dev/block/{os.major(device)}:{os.minor(device)}"
    lay(root, mounted(tmp_path, "ext4") | {f"{here}/queue/rotational": str(int("1" in told.values()))})
    (root / here / "slaves").mkdir()
    for disk_, turns in told.items():
        lay(root, {f"sys/devices/{disk_}/queue/rotational": turns})
        (root / here / "slaves" / disk_.rpartition("/")[2]).symlink_to(root / "sys/devices" / disk_)
    assert disk.disk_kind(tmp_path, root) == word


def test_a_loop_is_what_its_file_lies_on(tmp_path: Path) -> None:
    root, device = tmp_path / "root", os.stat(tmp_path).st_dev
    here = f"sys/dev/block/{os.major(device)}:{os.minor(device)}"
    lay(root, mounted(tmp_path, "ext4") | {f"{here}/queue/rotational": "1", f"{here}/loop/backing_file": "/image\n"})
    assert disk.disk_kind(tmp_path, root) == "rotating", "nobody knows where the file is"
    lay(root, {"image": "a loop on itself"})
    assert disk.disk_kind(tmp_path, root) == "unknown"


def test_a_file_that_is_gone_has_no_disk(tmp_path: Path) -> None:
    assert disk.disk_kind(tmp_path / "absent") == "unknown" and disk.disk_name(tmp_path / "absent") == ""
    assert disk.read_bytes_s(tmp_path / "absent") is None


def test_large_reads_are_timed_and_small_files_tell_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(os.urandom(1 << 20) * 4)
    assert disk.read_bytes_s(path) is None
    path.write_bytes(os.urandom(4 << 20) * 16)
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        assert disk.read_bytes_s(path) is None
        pytest.skip("this file system knows no direct reads")
    rate = disk.read_bytes_s(path, 0.1)
    assert rate is not None and 1e6 < rate < 1e12
