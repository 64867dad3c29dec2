"""Notices that the model file is no longer the one that was loaded, while weights are still read from it.

A mapped or streamed file that is cut, written to or replaced would be answered from as if nothing had happened; a map
of a file that was cut ends the process at the first page past its end. Not here: reading it (origin.py, placement.py).
"""

import os
from pathlib import Path

from engine.errors import ModelFileChanged, ReadFailed


class Watch:
    """`complaint()` compares the file with what it was now."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._seen = identity(os.stat(path))

    @property
    def n_bytes(self) -> int:
        """The file's size when it was seen first."""
        return self._seen[2]

    def is_of(self, fd: int) -> bool:
        """Whether an open file is the one that was seen."""
        return identity(os.fstat(fd)) == self._seen

    def complaint(self) -> ReadFailed | None:
        """What has happened to the file since, None if nothing; 2 us. A file that cannot be reached may come back, one
        that is another now has to be loaded."""
        try:
            now = identity(os.stat(self.path))
        except OSError as error:
            why = os.strerror(error.errno or 0).lower()
            return ReadFailed(f"the model file {self.path.name} cannot be reached any more ({why}); bring it back")
        if now == self._seen:
            return None
        if now[:2] != self._seen[:2]:
            what = "was replaced by another one"
        elif now[2] < self._seen[2]:
            what = f"was cut from {self._seen[2]:,} to {now[2]:,} bytes"
        else:
            what = "was written to"
        return ModelFileChanged(f"the model file {self.path.name} {what} while it was in use; load it again")


def identity(found: os.stat_result) -> tuple[int, int, int, int]:
    """What tells one state of a file from another without reading it."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
