"""The file behind a stream: every byte at any offset, direct or not. Not here: what happens to it (test_watch.py)."""

import mmap
import os

import pytest

from engine.errors import BadModelFile
from engine.gguf.reader import Part
from engine.weights import origin
from engine.weights.origin import Origin
from engine.weights.watch import Watch

DATA = os.urandom(3 * 4096 + 777)


@pytest.fixture(params=["direct", "through the page cache"])
def opened(request, tmp_path, monkeypatch):
    path = tmp_path / "some.gguf"
    path.write_bytes(DATA)
    if request.param != "direct":
        monkeypatch.setattr(origin, "_open_direct", lambda _path: -1)
    found = Origin([Part(path, 0, len(DATA))], Watch(path))
    if request.param == "direct" and not found.is_direct:
        found.close()
        pytest.skip("this file system takes no direct reads")
    yield found
    found.close()


@pytest.mark.parametrize(("offset", "n"), [(0, 4096), (1, 1), (4095, 2), (5000, 7000), (4096, 4096), (12288, 777)])
def test_any_bytes_come_whatever_their_alignment(opened, offset, n):
    memory = mmap.mmap(-1, 5 * 4096)
    at = opened.read_into(memoryview(memory), offset, n)
    assert memory[at : at + n] == DATA[offset : offset + n] == opened.read(offset, n)


def test_a_file_that_ends_too_early_is_a_sentence(opened):
    with pytest.raises(BadModelFile, match=r"some\.gguf ends too early"):
        opened.read_into(memoryview(mmap.mmap(-1, 5 * 4096)), 12288, 778)
    with pytest.raises(BadModelFile, match="ends too early"):
        opened.read(len(DATA) - 1, 2)


def test_a_file_that_was_exchanged_before_it_is_read_is_refused(tmp_path):
    path = tmp_path / "some.gguf"
    path.write_bytes(DATA)
    watch = Watch(path)
    path.unlink()
    path.write_bytes(DATA)
    os.utime(path, ns=(1, 1))
    with pytest.raises(BadModelFile, match="changed while it was being loaded"):
        Origin([Part(path, 0, len(DATA))], watch)


def test_a_file_system_without_direct_reads_is_found_out(tmp_path, monkeypatch):
    """Some open the file and then refuse to read it."""
    path = tmp_path / "some.gguf"
    path.write_bytes(DATA)

    def refuse(*_: object) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "preadv", refuse)
    before = len(os.listdir("/proc/self/fd"))
    assert origin._open_direct(path) == -1
    assert len(os.listdir("/proc/self/fd")) == before
