"""The documents of files and batches: a journal that is the truth, and an index made from it. Not here: bytes of files.

    journal.jsonl     one line per change, fsynced: {"kind", "id", "doc"}, doc null once it is deleted
    index.sqlite      the newest document of each id, for lists; made anew from the journal whenever they differ

All methods belong to one thread. A line of the journal that cannot be read costs that change alone and is told.
"""

import contextlib
import json
import logging
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Literal

from appliance.batches.results import CannotStore, dumps, replace
from appliance.machine.disk import disk_kind
from engine.errors import UsageError

Kind = Literal["file", "batch"]
Doc = dict[str, Any]
COMPACT_BYTES = 16 << 20
SCHEMA = """
    CREATE TABLE IF NOT EXISTS docs (
        seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, purpose TEXT,
        status TEXT, doc TEXT NOT NULL);
    CREATE INDEX IF NOT EXISTS by_kind ON docs (kind, seq);
    CREATE TABLE IF NOT EXISTS upto (one INTEGER PRIMARY KEY CHECK (one = 1), bytes INTEGER NOT NULL);
"""
log = logging.getLogger("colibri.batch")


class Store:
    """`open` it in its thread. Documents have "owner", and "purpose" (files) or "status" (batches)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path, self._index = folder / "journal.jsonl", folder / "index.sqlite"
        self._journal: BinaryIO | None = None
        self._db: sqlite3.Connection | None = None

    def open(self) -> None:
        """Read what is there; raises UsageError when the folder cannot be used."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if disk_kind(self._folder) == "network":
                text = "the folder for batches is on a network file system, which may lose what was written"
                raise UsageError(f"{text}; give a folder of this machine with --data-dir")
            self._journal = self._path.open("a+b")
            size = self._mend()
        except OSError as error:
            raise UsageError(
                f"the folder for batches cannot be written ({error.strerror}); check owner and mode of the data folder"
            ) from None
        try:
            self._db = self._connect()
            upto = self._db.execute("SELECT bytes FROM upto").fetchone()
            if upto != (size,):
                self._rebuild(size)
        except sqlite3.DatabaseError:
            self._drop_index()
            self._db = self._connect()
            self._rebuild(size)
        if size > COMPACT_BYTES:
            self._compact()

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
        if self._journal is not None:
            self._journal.close()

    def put(self, kind: Kind, name: str, doc: Doc | None) -> None:
        """Make, change or (None) delete one; on the disk when this returns. Raises CannotStore."""
        assert self._journal is not None and self._db is not None
        line, end = dumps({"kind": kind, "id": name, "doc": doc}), os.fstat(self._journal.fileno()).st_size
        try:
            data = memoryview(line)
            while data:
                data = data[os.write(self._journal.fileno(), data) :]
            os.fsync(self._journal.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._journal.fileno(), end)
            raise CannotStore(f"the batches' journal cannot be written ({error.strerror}); free space") from None
        try:
            with self._db:
                self._take([(kind, name, doc)])
                self._note(end + len(line))
        except sqlite3.DatabaseError as error:  # the journal has it, and the next start reads that
            log.error("the batches' index cannot be written: %s", type(error).__name__)

    def get(self, kind: Kind, name: str, owner: str | None = None) -> Doc | None:
        """The document, if there is one (of that owner)."""
        sql = "SELECT doc FROM docs WHERE id = ? AND kind = ?" + (" AND owner = ?" if owner is not None else "")
        found = self._ask(sql, (name, kind) if owner is None else (name, kind, owner))
        return found[0] if found else None

    def page(
        self, kind: Kind, owner: str | None, limit: int, after: str | None = None, purpose: str | None = None,
        oldest_first: bool = False,
    ) -> list[Doc]:  # fmt: skip
        """Up to `limit` documents behind the one with the id `after`, the newest first."""
        sql, values = "SELECT doc FROM docs WHERE kind = ?", [str(kind)]
        for column, value in (("owner", owner), ("purpose", purpose)):
            if value is not None:
                sql, values = f"{sql} AND {column} = ?", [*values, value]
        if after is not None:
            sign = ">" if oldest_first else "<"
            sql, values = f"{sql} AND seq {sign} (SELECT seq FROM docs WHERE id = ?)", [*values, after]
        return self._ask(f"{sql} ORDER BY seq {'ASC' if oldest_first else 'DESC'} LIMIT ?", (*values, limit))

    def of_status(self, statuses: Iterable[str]) -> list[Doc]:
        """The batches with one of these, the oldest first."""
        known = tuple(statuses)
        marks = ", ".join("?" * len(known))
        return self._ask(f"SELECT doc FROM docs WHERE kind = 'batch' AND status IN ({marks}) ORDER BY seq", known)

    def figures(self) -> tuple[int, int]:
        """(files, batches) there are."""
        assert self._db is not None
        n = dict(self._db.execute("SELECT kind, count(*) FROM docs GROUP BY kind").fetchall())
        return n.get("file", 0), n.get("batch", 0)

    # Inside

    def _ask(self, sql: str, values: tuple[Any, ...]) -> list[Doc]:
        assert self._db is not None
        return [json.loads(doc) for (doc,) in self._db.execute(sql, values)]

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._index, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.executescript(SCHEMA)
        return db

    def _drop_index(self) -> None:
        log.error("the batches' index is damaged and is made anew")
        if self._db is not None:
            self._db.close()
        for end in ("", "-wal", "-shm"):
            self._index.with_name(self._index.name + end).unlink(missing_ok=True)

    def _mend(self) -> int:
        """Cut a line that a crash tore; the journal's bytes."""
        assert self._journal is not None
        size = os.fstat(self._journal.fileno()).st_size
        back = min(size, 1 << 20)
        tail = os.pread(self._journal.fileno(), back, size - back)
        if tail and not tail.endswith(b"\n"):
            size = size - back + tail.rfind(b"\n") + 1
            os.ftruncate(self._journal.fileno(), size)
            os.fsync(self._journal.fileno())
        return size

    def _rebuild(self, size: int) -> None:
        assert self._db is not None
        with self._db:
            self._db.execute("DELETE FROM docs")
            self._take(self._changes())
            self._note(size)

    def _changes(self) -> Iterable[tuple[Kind, str, Doc | None]]:
        with self._path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                try:
                    entry = json.loads(raw)
                    kind, name, doc = entry["kind"], entry["id"], entry["doc"]
                    sound = kind in ("file", "batch") and isinstance(name, str)
                    if not sound or (doc is not None and not isinstance(doc["owner"], str)):
                        raise ValueError
                except (ValueError, LookupError, TypeError, RecursionError):
                    log.error("line %d of the batches' journal is damaged; that change is lost", number)
                    continue
                yield kind, name, doc

    def _take(self, changes: Iterable[tuple[Kind, str, Doc | None]]) -> None:
        assert self._db is not None
        for kind, name, doc in changes:
            if doc is None:
                self._db.execute("DELETE FROM docs WHERE id = ?", (name,))
                continue
            self._db.execute(
                "INSERT INTO docs (kind, id, owner, purpose, status, doc) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, purpose = excluded.purpose, "
                "status = excluded.status, doc = excluded.doc",
                (kind, name, doc["owner"], doc.get("purpose"), doc.get("status"), json.dumps(doc)),
            )

    def _note(self, size: int) -> None:
        assert self._db is not None
        self._db.execute("INSERT OR REPLACE INTO upto VALUES (1, ?)", (size,))

    def _compact(self) -> None:
        """Write the journal anew with what is in force; skipped when the disk does not take it."""
        assert self._db is not None and self._journal is not None
        rows = self._db.execute("SELECT kind, id, doc FROM docs ORDER BY seq").fetchall()
        data = b"".join(dumps({"kind": kind, "id": name, "doc": json.loads(doc)}) for kind, name, doc in rows)
        if len(data) > COMPACT_BYTES // 2:
            return
        try:
            replace(self._path, data)
        except CannotStore as error:
            log.error("%s", error.message)
            return
        self._journal.close()
        self._journal = self._path.open("a+b")
        with self._db:
            self._note(len(data))
