"""The files and batches of the data folder, for the event loop: every call runs in the one thread that writes them.

    batches/files/ID            bytes that clients sent
    batches/runs/BATCH/         output.jsonl, errors.jsonl: kept where they were written, and served from there

Not here: journal and index (store.py), who may ask.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from appliance.batches.job import AHEAD, ENDED, UNFINISHED, Doc, advanced
from appliance.batches.results import CannotStore, sync_folder
from appliance.batches.store import Store
from engine.errors import InvalidParameter, QueueFull

MOST_FILES, MOST_BATCHES, MOST_UNFINISHED = 2000, 2000, 200
SPARE_BYTES = 256 << 20
"""What an upload leaves free on the disk, for answers."""
T = TypeVar("T")


class Library:
    """`open` before anything else. Documents are values: what is returned may be kept and is never changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._store = Store(folder)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")

    async def open(self) -> None:
        await self.call(self._open)

    async def close(self) -> None:
        await self.call(self._store.close)
        self._thread.shutdown(wait=False)

    async def call(self, work: Callable[..., T], *args: Any) -> T:
        """Run it in the writer's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    # Files

    def draft(self, n_bytes: int) -> Path:
        """Where an upload of up to so many bytes goes first; raises CannotStore, QueueFull. In a thread."""
        self._check_room("file", MOST_FILES)
        if shutil.disk_usage(self.folder).free - n_bytes < SPARE_BYTES:
            raise CannotStore("the disk has no room for a file of that size; delete files and batches, or free space")
        return self.folder / "files" / f".draft-{uuid.uuid4().hex}"

    async def keep(self, draft: Path, owner: str, filename: str, purpose: str, n_bytes: int) -> Doc:
        """Make a written and fsynced draft a file."""
        doc = {
            "id": f"file-{uuid.uuid4().hex}", "object": "file", "bytes": n_bytes, "created_at": int(time.time()),
            "filename": filename, "purpose": purpose, "status": "processed", "owner": owner,
        }  # fmt: skip

        def work() -> Doc:
            path = self.folder / "files" / str(doc["id"])
            try:
                os.replace(draft, path)
                sync_folder(path.parent)
            except OSError as error:
                raise CannotStore(f"the file cannot be stored ({error.strerror})") from None
            self._store.put("file", path.name, {**doc, "path": f"files/{path.name}"})
            return doc

        return await self.call(work)

    async def file(self, name: str, owner: str | None) -> Doc | None:
        return await self.call(self._store.get, "file", name, owner)

    async def files(
        self, owner: str | None, limit: int, after: str | None, purpose: str | None, oldest_first: bool
    ) -> list[Doc]:
        return await self.call(self._store.page, "file", owner, limit, after, purpose, oldest_first)

    def path(self, doc: Doc) -> Path:
        """Where a file's bytes are."""
        return self.folder / str(doc["path"])

    async def delete(self, doc: Doc) -> None:
        """Forget a file; one that an unfinished batch reads or writes stays, with InvalidParameter."""

        def work() -> None:
            for batch in self._store.of_status(UNFINISHED):
                if doc["id"] in (batch["input_file_id"], batch["output_file_id"], batch["error_file_id"]):
                    text = f"the batch {batch['id']} is not finished and needs this file; cancel the batch first"
                    raise InvalidParameter(text, param="file_id")
            self._store.put("file", str(doc["id"]), None)
            self.path(doc).unlink(missing_ok=True)

        await self.call(work)

    # Batches

    async def add(self, doc: Doc) -> None:
        def work() -> None:
            self._check_room("batch", MOST_BATCHES)
            if len(self._store.of_status(UNFINISHED)) >= MOST_UNFINISHED:
                text = f"{MOST_UNFINISHED} batches are not finished yet, as many as may; wait for one of them"
                raise QueueFull(text, retry_after_s=600)
            self._store.put("batch", str(doc["id"]), doc)

        await self.call(work)

    async def batch(self, name: str, owner: str | None = None) -> Doc | None:
        return await self.call(self._store.get, "batch", name, owner)

    async def batches(self, owner: str | None, limit: int, after: str | None) -> list[Doc]:
        return await self.call(self._store.page, "batch", owner, limit, after)

    async def unfinished(self) -> list[Doc]:
        """The oldest first."""
        return await self.call(self._store.of_status, UNFINISHED)

    async def advance(self, name: str, status: str, **more: Any) -> Doc:
        """Put a batch into its next state, if that lies ahead of the one it is in; the document now in force."""

        def work() -> Doc:
            doc = self._store.get("batch", name)
            assert doc is not None, name
            if status in AHEAD.get(doc["status"], ()):
                doc = advanced(doc, status, **more)
                self._store.put("batch", name, doc)
            return doc

        return await self.call(work)

    def results(self, doc: Doc) -> tuple[Path, Path]:
        """Where a batch's answers and errors are written. In a thread."""
        folder = self.folder / "runs" / str(doc["id"])
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder / "output.jsonl", folder / "errors.jsonl"

    def register(self, doc: Doc) -> dict[str, str]:
        """Make files of a batch's results that are not empty; their ids by field. The same ids if called again."""
        found = {}
        for path, field in zip(self.results(doc), ("output_file_id", "error_file_id"), strict=True):
            size = path.stat().st_size if path.exists() else 0
            if size == 0:
                continue
            batch = doc["id"]
            name = f"file-{hashlib.sha256(f'{batch}/{path.name}'.encode()).hexdigest()[:32]}"
            found[field] = name
            self._store.put("file", name, {
                "id": name, "object": "file", "bytes": size, "created_at": int(time.time()),
                "filename": f"{doc['id']}_{path.name}", "purpose": "batch_output", "status": "processed",
                "owner": doc["owner"], "path": str(path.relative_to(self.folder)),
            })  # fmt: skip
        return found

    # Inside

    def _open(self) -> None:
        self._store.open()
        for name in ("files", "runs"):
            (self.folder / name).mkdir(mode=0o700, exist_ok=True)
        for draft in (self.folder / "files").glob(".draft-*"):  # uploads that a crash cut
            with contextlib.suppress(OSError):
                draft.unlink()

    def _check_room(self, kind: str, most: int) -> None:
        n = self._store.figures()[kind == "batch"]
        if n >= most:
            if kind == "batch":
                self._forget_oldest()
                return
            raise QueueFull(f"{n:,} files are stored, as many as may; delete some", retry_after_s=600)

    def _forget_oldest(self) -> None:
        """The oldest finished batch makes room; its files stay until they are deleted."""
        for doc in self._store.page("batch", None, MOST_BATCHES, oldest_first=True):
            if doc["status"] in ENDED:
                self._store.put("batch", str(doc["id"]), None)
                return
