"""How much of a file is cached: shares made on purpose, both system calls, nothing where the kernel says nothing."""

import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.machine import pagecache
from appliance.machine.pagecache import PAGE, SAMPLES, WHOLE_BYTES, cached_share
from tests.appliance.nobody import as_nobody, needs_root


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A folder whose files can be put out of the page cache (a memory file system has nothing else)."""
    probe = written(tmp_path / "probe", PAGE)
    dropped(probe, 0, 0)
    if cached_share(probe) != 0.0:
        pytest.skip("the folder for temporary files lies in memory, or nobody tells what is cached")
    return tmp_path


def written(path: Path, n_bytes: int) -> Path:
    with path.open("wb") as file:
        for _ in range(n_bytes >> 20):
            file.write(bytes(1 << 20))
        file.write(bytes(n_bytes & ((1 << 20) - 1)))
        file.flush()
        os.fsync(file.fileno())
    return path


def dropped(path: Path, offset: int, n_bytes: int) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, offset, n_bytes, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def ways() -> list[Callable[[int, int, int], int | None]]:
    return [pagecache._by_cachestat, pagecache._by_mincore]


@pytest.mark.parametrize("way", ways(), ids=["cachestat", "mincore"])
def test_a_known_part_of_a_small_file(way: Callable[[int, int, int], int | None], disk: Path) -> None:
    path = written(disk / "small", 8 * (1 << 20) + 5)
    fd = os.open(path, os.O_RDONLY)
    try:
        if way(fd, 0, PAGE) is None:
            pytest.skip("this kernel does not know the call")
        pages = -(-path.stat().st_size // PAGE)
        assert way(fd, 0, path.stat().st_size) == pages
        dropped(path, 0, 2 << 20)
        assert way(fd, 0, path.stat().st_size) == pages - (2 << 20) // PAGE
        dropped(path, 0, 0)
        assert way(fd, 0, path.stat().st_size) == 0
    finally:
        os.close(fd)


def test_both_calls_agree_and_a_large_file_is_sampled(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(disk / "large", 3 * WHOLE_BYTES)
    assert cached_share(path) == 1.0
    dropped(path, 0, WHOLE_BYTES)
    share = cached_share(path)
    assert share == pytest.approx(2 / 3, abs=2 / SAMPLES)
    monkeypatch.setattr(pagecache, "_by_cachestat", lambda fd, offset, length: None)  # an older kernel
    assert cached_share(path) == share


def test_what_is_looked_at_is_small_and_within_the_file() -> None:
    for size in (1, PAGE, WHOLE_BYTES, WHOLE_BYTES + 1, 100 << 30):
        stretches = list(pagecache._stretches(size))
        assert sum(length for _, length in stretches) <= WHOLE_BYTES
        assert all(offset % mmap.PAGESIZE == 0 and offset + length <= size for offset, length in stretches)
        assert stretches[0][0] == 0 and size - sum(stretches[-1]) < PAGE


def test_nothing_is_told_of_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    for name in ("absent", "empty", "pipe", "."):
        assert cached_share(tmp_path / name) is None


@needs_root
def test_a_strangers_file_is_unknown_not_wholly_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """mincore answers "all of it" to whoever must not know."""
    monkeypatch.setattr(pagecache, "_by_cachestat", lambda fd, offset, length: None)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = written(Path(folder, "theirs"), 1 << 20)
        assert as_nobody(lambda: (path.read_bytes()[:1], cached_share(path))) == "(b'\\x00', None)"
        path.chmod(0o666)
        assert as_nobody(lambda: cached_share(path)) == "1.0"
