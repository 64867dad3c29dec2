"""Files that are replaced whole or not at all, and a lock between processes. Not here: what is in them (store.py)."""

import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from appliance.profiles.problems import NotSaved

LOCK_WAIT_S = 10.0


def read_bounded(path: Path, most: int) -> bytes | None:
    """At most `most` + 1 bytes of a regular file; None where there is none. Raises OSError for one it may not read."""
    try:
        # A pipe of that name would block for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(most + 1)
    finally:
        os.close(handle)


def replace(path: Path, content: bytes) -> None:
    """After this the file holds `content`, even if the power fails now; a failure leaves what was there."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    if path.parent.is_dir():
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """The folder and its parents, each entry on the disk."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o755, exist_ok=True)
        sync_folder(folder.parent)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Alone among all processes and threads that write in `folder`; a killed one's lock is gone with it."""
    make_folder(folder)
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        end = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise NotSaved(f"another process has been writing in {folder} for {LOCK_WAIT_S:.0f} s; "
                                   "try again, and look for a hung colibri if it stays so") from None  # fmt: skip
                time.sleep(0.01)
        # Whoever wrote these was killed: writers hold the lock, and we have it.
        for left in folder.rglob(".*.tmp"):
            left.unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)
