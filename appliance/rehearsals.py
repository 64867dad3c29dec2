"""What rehearsals of profiles came to, kept in the data folder: the newest of each. Not here: rehearsing.

    rehearsals.json   {"version": 1, "profiles": {"NAME": {"etag", "time", ...}}}

A rehearsal speaks for the text that was rehearsed: after a change of the profile it counts no more.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from engine.errors import UsageError

NAME = "rehearsals.json"
VERSION = 1
MOST_BYTES = 4 << 20


def keep(data_dir: Path, name: str, found: dict[str, Any]) -> None:
    """Note what the rehearsal of the profile `name` came to, in place of the one before."""
    kept = {**_read(data_dir), name: found}
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=data_dir, prefix=f".{NAME}", delete=False) as file:
            json.dump({"version": VERSION, "profiles": kept}, file)
        os.replace(file.name, data_dir / NAME)
    except OSError as error:
        reason = (error.strerror or "it fails").lower()
        raise UsageError(
            f"the rehearsal cannot be noted in {data_dir} ({reason}); name another folder with --data-dir"
        ) from error


def last(data_dir: Path, name: str, etag: str | None) -> dict[str, Any] | None:
    """The rehearsal of that very text; None when it never was rehearsed."""
    found = _read(data_dir).get(name)
    return found if isinstance(found, dict) and found.get("etag") == etag else None


def _read(data_dir: Path) -> dict[str, Any]:
    """All notes; what is odd counts as nothing noted."""
    try:
        with open(os.open(data_dir / NAME, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as file:
            found = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    is_ours = isinstance(found, dict) and found.get("version") == VERSION
    return found["profiles"] if is_ours and isinstance(found.get("profiles"), dict) else {}
