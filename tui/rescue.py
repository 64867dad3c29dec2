"""Text that was typed and not saved, kept beside the program against a lost terminal. Not here: when it is written.

One file for each profile and each running program, `rescue-NAME-PID.yaml` in the user's folder (papers.py); it goes
when the text is saved or thrown away on purpose. What a dead program left is offered when the profile is next opened.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tui import papers

MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Rescued:
    """What a program left behind, and when it last wrote."""

    path: Path
    text: str
    at: float


def _path(name: str, pid: int) -> Path:
    return papers.folder() / f"rescue-{_safe(name)}-{pid}.yaml"


def _safe(name: str) -> str:
    return re.sub(r"[^a-z0-9._-]", "-", name)[:63]


def write(name: str, text: str) -> Path | None:
    """Put the text there whole or not at all; None where nothing can be written. It never raises."""
    try:
        path = _path(name, os.getpid())
        new = path.with_suffix(".new")
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            file.write(text)
        os.replace(new, path)
    except (OSError, UnicodeError):
        return None
    return path


def drop(name: str) -> None:
    """Our own copy is of no use any more."""
    try:
        _path(name, os.getpid()).unlink(missing_ok=True)
    except OSError:
        return


def left(name: str) -> Rescued | None:
    """The newest copy that a program which has ended left of this profile."""
    found = []
    try:
        for path in papers.folder().glob(f"rescue-{_safe(name)}-*.yaml"):
            pid = path.stem.rpartition("-")[2]
            if pid.isdecimal() and not _is_alive(int(pid)) and path.stat().st_size <= MOST_BYTES:
                raw = path.read_bytes().decode("utf-8", "replace")
                found.append(Rescued(path, raw, path.stat().st_mtime))
    except OSError:
        return None
    return max(found, key=lambda rescued: rescued.at, default=None)


def forget(rescued: Rescued) -> None:
    """It was taken, or nobody wants it."""
    try:
        rescued.path.unlink(missing_ok=True)
    except OSError:
        return


def _is_alive(pid: int) -> bool:
    if pid == os.getpid():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
