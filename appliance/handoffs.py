"""Answers that were handed over to a person: who asked, when and why, kept over restarts. Not here: the decision, HTTP.

    handoffs.jsonl    one line each, fsynced; the newest KEPT are kept, and a torn or foreign line costs itself alone

The id is the one that the client got in `colibri.handoff`. What was asked is not stored: the client has it.
"""

import json
import logging
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

KEPT = 1000
MOST_BYTES = 1 << 20
FIELDS = ("id", "time", "reason", "model", "key")
log = logging.getLogger("colibri.handoff")


def handoff_id(answer: str) -> str:
    """Of the answer with this id."""
    return f"ho-{answer.rpartition('-')[2]}"


class Handoffs:
    """The event loop adds and reads; a thread of its own writes, in order. A full disk costs no answer."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "handoffs.jsonl"
        self._kept: deque[dict[str, Any]] = deque(self._read(), maxlen=KEPT)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="handoffs")

    def add(self, record: dict[str, Any]) -> None:
        """Keep one; `record` has FIELDS: texts, and the time in seconds."""
        assert record.keys() == set(FIELDS), record.keys()
        self._kept.append(record)
        self._writer.submit(self._write, record, list(self._kept))

    def page(self, limit: int) -> dict[str, Any]:
        """The newest `limit`, the newest of them first, and how many are kept."""
        newest = list(self._kept)[-limit:][::-1]
        return {"object": "list", "data": newest, "kept": len(self._kept)}

    def close(self) -> None:
        """Wait until all are written."""
        self._writer.shutdown()

    def _read(self) -> list[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 2 * MOST_BYTES))
                lines = [line for line in file.read().splitlines() if line]
        except OSError:
            return []
        found = []
        for line in lines[-KEPT:]:
            try:
                record = json.loads(line)
                if record.keys() == set(FIELDS) and isinstance(record["time"], int | float):
                    found.append({name: record[name] for name in FIELDS})
            except (ValueError, AttributeError, RecursionError):
                continue  # torn by the end of the machine, or not of ours
        return found

    def _write(self, record: dict[str, Any], kept: list[dict[str, Any]]) -> None:
        try:
            # A line torn by a crash must not swallow the next one, so each begins a line of its own.
            with self._path.open("ab") as file:
                file.write(b"\n" + json.dumps(record, ensure_ascii=False).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            if size > MOST_BYTES:
                fresh = self._path.with_suffix(".new")
                fresh.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in kept), "utf-8")
                fresh.replace(self._path)
        except OSError as error:
            log.error("a hand-over is not on the disk: %s", error.strerror)
