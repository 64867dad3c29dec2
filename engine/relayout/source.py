"""Reads stretches of a large file once, without filling the page cache with them. Not here: what they mean."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from engine.errors import BadModelFile
from engine.gguf.layout import quoted

CHUNK = 8 << 20

# (stage, bytes done, bytes in all)
Progress = Callable[[str, int, int], None]


class Source:
    """A file open for reading; `count` is told of every stretch's bytes as they are read."""

    def __init__(self, path: Path, count: Callable[[int], None] = lambda n: None) -> None:
        self._name, self._count = quoted(path.name, 120), count
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._fd)

    def chunks(self, start: int, n_bytes: int) -> Iterator[bytes]:
        """So many bytes from `start` on; BadModelFile when the file has become shorter or the disk fails."""
        end = start + n_bytes
        while start < end:
            try:
                data = os.pread(self._fd, min(CHUNK, end - start), start)
            except OSError as error:
                words = (error.strerror or "unknown").lower()
                raise BadModelFile(f"{self._name} cannot be read at byte {start:,}: {words}") from None
            if not data:
                raise BadModelFile(f"{self._name} became shorter while it was read: it ends at byte {start:,}")
            os.posix_fadvise(self._fd, start, len(data), os.POSIX_FADV_DONTNEED)
            yield data
            start += len(data)
            self._count(len(data))


class Stretch:
    """Bytes of a source, read when they are written (gguf/writer.py)."""

    def __init__(self, source: Source, start: int, n_bytes: int) -> None:
        self._source, self._start, self._n_bytes = source, start, n_bytes

    def __len__(self) -> int:
        return self._n_bytes

    def chunks(self) -> Iterator[bytes]:
        return self._source.chunks(self._start, self._n_bytes)
