"""What must be known after the service was ended: which profile serves, and how swaps went. Not here: doing them.

    swaps.jsonl    one line when a swap begins, one (the whole document) when it ends; the newest MOST_LINES are kept
    active.json    {"name", "rev", "since"} of the profile that served last

A swap that has a beginning and no end was cut by the end of the service; `Swapper.resumed` says so and closes it.
"""

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from appliance import logs

ACTIVE = "active.json"
MOST_LINES = 100
MOST_BYTES = 4 << 20
log = logs.get_logger("colibri.swap")


class Journal:
    """Files in the data folder. Every method may be called from a thread; a disk that is full costs history only."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._swaps = folder, folder / "swaps.jsonl"
        self.cut: list[dict[str, Any]] = []
        self.past: list[dict[str, Any]] = []
        self._read()

    def active(self) -> str | None:
        return last_served(self._folder)

    def serves(self, name: str, rev: int) -> None:
        """From now on this profile serves."""
        self._replace(self._folder / ACTIVE, json.dumps({"name": name, "rev": rev, "since": time.time()}))

    def begun(self, document: dict[str, Any]) -> None:
        self._append({"begun": {key: document[key] for key in ("id", "from", "to", "to_rev", "by", "started")}})

    def ended(self, document: dict[str, Any]) -> None:
        self.past.append(document)
        del self.past[:-MOST_LINES]
        self._append({"ended": document})
        with contextlib.suppress(OSError):
            if self._swaps.stat().st_size > MOST_BYTES:
                self._shorten()

    def next_id(self) -> str:
        """Four digits, one more than the last."""
        ids = [int(str(swap.get("id", "0"))) for swap in self.past if str(swap.get("id", "0")).isdecimal()]
        return f"{max(ids, default=0) + 1:04d}"

    def _read(self) -> None:
        try:
            with self._swaps.open("rb") as file:
                file.seek(max(0, self._swaps.stat().st_size - MOST_BYTES))
                lines = file.read().splitlines()
        except OSError:
            return
        open_: dict[str, dict[str, Any]] = {}
        past: list[dict[str, Any]] = []
        for line in lines[-2 * MOST_LINES :]:
            try:
                entry = json.loads(line)
                if "begun" in entry:
                    open_[entry["begun"]["id"]] = _ours(entry["begun"], ("id", "from", "to"), ("started",))
                elif "ended" in entry:
                    past.append(_ours(entry["ended"], ("id", "from", "to", "state", "text"), ("started", "ended")))
                    open_.pop(past[-1]["id"], None)
            except (ValueError, LookupError, TypeError, RecursionError):
                continue  # a line torn by the end of the machine, or not of ours
        self.cut, self.past = list(open_.values()), past[-MOST_LINES:]
        if len(lines) > 2 * MOST_LINES:
            self._shorten()

    def _shorten(self) -> None:
        self._replace(self._swaps, "".join(json.dumps({"ended": one}) + "\n" for one in self.past))

    def _append(self, entry: dict[str, Any]) -> None:
        try:
            with self._swaps.open("ab") as file:
                # After a torn line the next one must not be glued to it.
                if file.tell() and not _ends_with_newline(self._swaps):
                    file.write(b"\n")
                file.write(json.dumps(entry).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            log.error("the swap cannot be noted in %s: %s", self._swaps, error.strerror)

    def _replace(self, path: Path, text: str) -> None:
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with draft.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        except OSError as error:
            log.error("%s cannot be written: %s", path, error.strerror)
            with contextlib.suppress(OSError):
                draft.unlink()


def last_served(folder: Path) -> str | None:
    """The profile that served last, None when there was none or the note cannot be read. For everybody: to open a
    Journal is the service's right, it tidies the file."""
    try:
        name = json.loads((folder / ACTIVE).read_bytes()[:4096])["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) and name else None


def _ours(document: Any, words: tuple[str, ...], numbers: tuple[str, ...]) -> dict[str, Any]:
    """The document if those who read it can; else ValueError or its kin. Damage must not end a service."""
    json.dumps(document, allow_nan=False)
    sound = all(isinstance(document[key], str) for key in words)
    if not sound or not all(isinstance(document[key], int | float) for key in numbers):
        raise ValueError("not a swap's document")
    return dict(document)


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
