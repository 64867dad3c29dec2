"""A file that gets its name only when it is whole and proved. Not here: what is written into it."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.errors import ColibriError, UsageError
from engine.gguf.layout import quoted
from engine.relayout.source import Progress


class RelayoutFailed(ColibriError):
    """The file written is not what it must be, or there is no room for it; nothing was left behind."""

    code = "relayout_failed"


@contextmanager
def new_file(path: Path, n_bytes: int) -> Iterator[Path]:
    """A name beside `path` to write to, which becomes `path` at a good end and is gone after any other.

    UsageError when `path` is there already or cannot be, RelayoutFailed when the disk has no room for n_bytes.
    """
    name = quoted(path.name, 120)
    if os.path.lexists(path):
        raise UsageError(f"{name} is there already; name a file that is not")
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise UsageError(f"{name} cannot be written: {(error.strerror or 'unknown').lower()}") from None
    if n_bytes > free:
        raise RelayoutFailed(f"{name} needs {n_bytes:,} bytes and the disk has {free:,} left; make room")
    part = path.with_name(f".{path.name}.{os.getpid()}.relayout")
    try:
        yield part
        _name(part, path)
    except FileExistsError:
        raise UsageError(f"{name} is there already; name a file that is not") from None
    except OSError as error:
        raise RelayoutFailed(f"{name} cannot be written: {(error.strerror or 'unknown').lower()}") from None
    finally:
        part.unlink(missing_ok=True)


def _name(part: Path, path: Path) -> None:
    """Give `part` the name `path`; unlike a rename a link never replaces what came into being meanwhile."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(path):
            raise FileExistsError from None
        part.rename(path)


def counter(on_progress: Progress, stage: str, total: int) -> Callable[[int], None]:
    """Tells `on_progress` of so many bytes more."""
    done = 0

    def count(n: int) -> None:
        nonlocal done
        done += n
        on_progress(stage, done, total)

    return count


def settled(path: Path) -> None:
    """Have the file's bytes on the disk, so that what is read again comes from there."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
