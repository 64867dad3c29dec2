"""An append-only file of JSON lines that survives crashes: what was written is whole, and nothing is written twice.

Each append is one write and one fsync. A crash can only tear the last line, so opening repairs that one and takes
damage anywhere else for what it is: an error. A note beside the file (NAME.meta) keeps the digest of the input it
answers, so that answers of two inputs never mix. Not here: what the records hold.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from engine.errors import ColibriError, UsageError

MICRO = 16
"""Most rows that a crash may cost: computed or in work, and not yet on the disk."""
MAX_RECORD = 64 << 20


class BadResults(UsageError):
    """The results cannot be gone on with: damaged, of another input, or in use."""

    code = "bad_results"


class CannotStore(ColibriError):
    """The disk took nothing; what was written before is whole, and the rows can be written later."""

    status, code = 507, "storage_full"


def by_custom_id(record: dict[str, Any]) -> Hashable:
    """What tells one answer from another."""
    return str(record["custom_id"])


def by_line(record: dict[str, Any]) -> Hashable:
    """The same for records of lines, which may have no custom_id."""
    return int(record["error"]["line"])


class Results:
    """`open`, `append`..., `close`, all in one thread at a time. `done` maps a record's key to its (offset, size)."""

    def __init__(
        self, path: Path, sha256: str | None = None, key: Callable[[dict[str, Any]], Hashable] = by_custom_id
    ) -> None:
        self.path, self.key = path, key
        self.done: dict[Hashable, tuple[int, int]] = {}
        self._sha256 = sha256
        self._file: BinaryIO | None = None
        self._end = 0

    @property
    def meta(self) -> Path:
        return self.path.with_name(self.path.name + ".meta")

    def open(self) -> "Results":
        """Make the file, or read the one that is there and repair its end. Raises BadResults, CannotStore."""
        try:
            file = self.path.open("a+b")
        except OSError as error:
            raise CannotStore(f"{self.path.name} cannot be written ({error.strerror})") from None
        try:
            self._lock(file)
            self._check_input(is_new=os.fstat(file.fileno()).st_size == 0)
            self._read(file)
        except BaseException:
            file.close()
            raise
        self._file = file
        return self

    def append(self, records: Sequence[dict[str, Any]]) -> None:
        """Write them and wait until the disk has them; all of them or, with CannotStore, none."""
        assert self._file is not None
        lines = [dumps(record) for record in records]
        keys = [self.key(record) for record in records]
        assert len(set(keys)) == len(keys) and not any(key in self.done for key in keys), keys
        fd, data = self._file.fileno(), memoryview(b"".join(lines))
        try:
            while data:
                data = data[os.write(fd, data) :]
            os.fsync(fd)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, self._end)
            raise CannotStore(f"{self.path.name} cannot be written ({error.strerror}); free space and go on") from None
        for key, line in zip(keys, lines, strict=True):
            self.done[key] = (self._end, len(line))
            self._end += len(line)

    def read(self, key: Hashable) -> dict[str, Any]:
        """The record of a key that is done."""
        assert self._file is not None
        offset, size = self.done[key]
        found: dict[str, Any] = json.loads(os.pread(self._file.fileno(), size, offset))
        return found

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> "Results":
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self, file: BinaryIO) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadResults(f"another process writes {self.path.name}; wait for its end") from None

    def _check_input(self, is_new: bool) -> None:
        """The results of one input are gone on with for that input alone."""
        if self._sha256 is None:
            return
        try:
            known = json.loads(self.meta.read_bytes()[:4096]).get("input_sha256")
        except FileNotFoundError:
            known = None
        except (OSError, ValueError, AttributeError):
            raise BadResults(f"{self.meta.name} is damaged; take it away if the results are of this input") from None
        if known is None or is_new:
            replace(self.meta, json.dumps({"input_sha256": self._sha256}).encode())
        elif known != self._sha256:
            text = f"{self.path.name} holds answers of another input (or this one was edited); give another output"
            raise BadResults(text)

    def _read(self, file: BinaryIO) -> None:
        file.seek(0)
        number = end = 0
        size = os.fstat(file.fileno()).st_size
        while raw := file.readline(MAX_RECORD):
            number += 1
            is_last = end + len(raw) == size
            try:
                record = json.loads(raw)
                key = self.key(record)
            except (ValueError, LookupError, TypeError, RecursionError):
                if is_last and not raw.endswith(b"\n"):
                    break  # torn by a crash
                raise self._damaged(number, "is no record of a batch") from None
            if key in self.done:
                raise self._damaged(number, "answers a row a second time")
            self.done[key] = (end, len(raw))
            end += len(raw)
            if not raw.endswith(b"\n"):
                os.write(file.fileno(), b"\n")
                self.done[key] = (end - len(raw), len(raw) + 1)
                end, size = end + 1, size + 1
        try:
            os.ftruncate(file.fileno(), end)
            os.fsync(file.fileno())
            sync_folder(self.path.parent)
        except OSError as error:
            raise CannotStore(f"{self.path.name} cannot be repaired ({error.strerror})") from None
        self._end = end

    def _damaged(self, number: int, what: str) -> BadResults:
        text = f"line {number} of {self.path.name} {what}; mend the file or give another output"
        return BadResults(text)


def dumps(record: dict[str, Any]) -> bytes:
    """One line, the same bytes for the same record."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def replace(path: Path, data: bytes) -> None:
    """The whole file anew, on the disk when this returns; raises CannotStore."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise CannotStore(f"{path.name} cannot be written ({error.strerror}); free space and go on") from None


def sync_folder(folder: Path) -> None:
    """Make new names in a folder last."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
