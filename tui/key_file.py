"""Finds the admin key that opens the service's /admin. Not here: what the service does with it, other settings."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

MOST_BYTES = 64 * 1024


class Found(NamedTuple):
    """A key, where it is from or was looked for, and what is wrong with that place."""

    key: str
    where: str
    fault: str = ""


def find(given: str, env: Mapping[str, str] = os.environ) -> Found:
    """The key of `given` (a file), else COLIBRI_ADMIN_KEY, else the file `keys` of the service's data folder."""
    if not given and env.get("COLIBRI_ADMIN_KEY"):
        return Found(env["COLIBRI_ADMIN_KEY"].strip(), "COLIBRI_ADMIN_KEY")
    path = Path(given) if given else _data_dir(env) / "keys"
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES).decode("utf-8")
    except FileNotFoundError:
        return Found("", str(path), f"{path} does not exist" if given else "")
    except (OSError, UnicodeDecodeError) as error:
        return Found("", str(path), f"{path} cannot be read ({getattr(error, 'strerror', None) or 'no UTF-8 text'})")
    return _in_text(text, str(path))


def _data_dir(env: Mapping[str, str]) -> Path:
    folder = env.get("COLIBRI_DATA_DIR") or str(Path(env.get("XDG_DATA_HOME") or "~/.local/share", "colibri"))
    try:
        return Path(folder).expanduser()
    except RuntimeError:  # no home folder to be found
        return Path(folder)


def _in_text(text: str, where: str) -> Found:
    """A file of the service's form (`admin SECRET [name]`), or one line with the bare key, as Docker's secrets are."""
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    for words in lines:
        if words[0] == "admin" and len(words) >= 2:
            return Found(words[1], where)
    if len(lines) == 1 and len(lines[0]) == 1:
        return Found(lines[0][0], where)
    return Found("", where, f"{where} holds no line 'admin SECRET'")
