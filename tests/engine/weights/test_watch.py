"""A file that is read again and again: what may happen to it meanwhile, and that it is told."""

import os
from pathlib import Path

from engine.errors import ModelFileChanged, ReadFailed
from engine.weights.watch import Watch

DATA = os.urandom(3 * 4096 + 777)


def told(watch: Watch) -> tuple[type[ReadFailed], str]:
    complaint = watch.complaint()
    assert complaint is not None
    return type(complaint), complaint.message.removeprefix("the model file some.gguf ")


def test_what_happens_to_the_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(DATA)
    watch = Watch(path)
    assert watch.complaint() is None
    with path.open("r+b") as file:
        assert watch.is_of(0, file.fileno())
        file.truncate(5000)
        assert not watch.is_of(0, file.fileno())
    assert told(watch) == (ModelFileChanged, "was cut from 13,065 to 5,000 bytes while it was in use; load it again")
    path.write_bytes(DATA)
    os.utime(path, ns=(1, 1))
    assert told(watch) == (ModelFileChanged, "was written to while it was in use; load it again")
    other = path.with_name("other")
    other.write_bytes(DATA)
    other.replace(path)
    assert told(watch) == (ModelFileChanged, "was replaced by another one while it was in use; load it again")
    path.unlink()
    gone = "cannot be reached any more (no such file or directory); bring it back"
    assert told(watch) == (ReadFailed, gone)


def test_a_file_that_is_read_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(DATA)
    watch = Watch(path)
    assert path.read_bytes() == DATA
    path.chmod(0o400)
    os.link(path, tmp_path / "another name")
    assert watch.complaint() is None
