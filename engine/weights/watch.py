"""Notices that the model file is no longer the one that was loaded, while weights are still read from it.

A mapped or streamed file that is cut, written to or replaced would be answered from as if nothing had happened; a map
of a file that was cut ends the process at the first page past its end. Not here: reading it (origin.py, placement.py).
"""

import os
from pathlib import Path

from engine.errors import ModelFileChanged, ReadFailed


class Watch:
    """`complaint()` compares the files of a model with what they were now."""

    def __init__(self, *paths: Path) -> None:
        self.paths = [path.absolute() for path in paths]
        self._seen = [identity(os.stat(path)) for path in paths]

    def is_of(self, i: int, fd: int) -> bool:
        """Whether an open file is the i-th that was seen."""
        return identity(os.fstat(fd)) == self._seen[i]

    def complaint(self) -> ReadFailed | None:
        """What has happened to one of the files since, None if nothing; 2 us for each. A file that cannot be reached
        may come back, one that is another now has to be loaded."""
        for path, seen in zip(self.paths, self._seen, strict=True):
            found = _change(path, seen)
            if found is not None:
                return found
        return None


Identity = tuple[int, int, int, int]


def _change(path: Path, seen: Identity) -> ReadFailed | None:
    try:
        now = identity(os.stat(path))
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        return ReadFailed(f"the model file {path.name} cannot be reached any more ({why}); bring it back")
    if now == seen:
        return None
    if now[:2] != seen[:2]:
        what = "was replaced by another one"
    elif now[2] < seen[2]:
        what = f"was cut from {seen[2]:,} to {now[2]:,} bytes"
    else:
        what = "was written to"
    return ModelFileChanged(f"the model file {path.name} {what} while it was in use; load it again")


def identity(found: os.stat_result) -> Identity:
    """What tells one state of a file from another without reading it."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
