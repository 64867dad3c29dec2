"""Files this program leaves for a person: screens, reports, tracebacks. Not here: what is in them, settings."""

import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

KEPT = 50  # of each kind; older ones are removed


def folder(env: Mapping[str, str] = os.environ) -> Path:
    """The user's folder for such files; a folder of their own in the temporary one where that cannot be written."""
    home = env.get("XDG_STATE_HOME") or ("~/.local/state" if env.get("HOME") else "")
    for place in (Path(home, "colibri").expanduser() if home else None,
                  Path(tempfile.gettempdir(), f"colibri-{os.getuid()}")):  # fmt: skip
        if place is None:
            continue
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (OSError, RuntimeError):
            continue
        # Somebody else's folder of that name in /tmp would show them what is written.
        if os.access(place, os.W_OK) and place.stat().st_uid == os.getuid():
            return place
    raise OSError("no folder to write to: neither XDG_STATE_HOME, ~/.local/state nor the temporary one can be written")


def keep(kind: str, text: str, ending: str = "txt") -> Path:
    """Write a text under a new name and say which; OSError when it cannot be."""
    place = folder()
    now = time.time()
    stamp = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}.{int(now % 1 * 1_000_000):06}"
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in kind)[:60].strip(".") or "page"
    path = place / f"{safe}-{stamp}.{ending}"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
        file.write(text if text.endswith("\n") else text + "\n")
    _thin_out(place, safe, ending)
    return path


def _thin_out(place: Path, kind: str, ending: str) -> None:
    for old in sorted(place.glob(f"{kind}-????????-??????.*.{ending}"))[:-KEPT]:
        old.unlink(missing_ok=True)
