"""A folder that takes files of rows all day and is worked off at night. Not here: answering them.

DIR/*.jsonl     dropped here by anybody, also while it is worked off
DIR/out/        NAME.jsonl with the answers, NAME.errors.jsonl with the rows that have none
DIR/done/       inputs whose rows are all answered or failed
DIR/refused/    files that are no input, each with NAME.why.txt
"""

import os
import shutil
import time
from pathlib import Path

from appliance.batches.results import replace, sync_folder
from engine.errors import UsageError

SETTLE_S = 5.0
"""A file that was written less than this ago may not be whole yet."""
MOST_FILES = 10_000


class Spool:
    """The folder, its inner ones made when they are needed."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UsageError(f"there is no spool folder {folder}; make it first (mkdir {folder})")
        self.folder = folder

    def add(self, source: Path) -> Path:
        """Copy a file in, whole or not at all, and give it a name that nothing there has."""
        draft = self.folder / f".{os.getpid()}.{source.name}.part"
        try:
            shutil.copyfile(source, draft)
            with draft.open("rb+") as file:
                os.fsync(file.fileno())
            past = time.time() - SETTLE_S - 1
            os.utime(draft, (past, past))
            target = self._free(source.stem)
            os.link(draft, target)
        except OSError as error:
            raise UsageError(f"the spool folder {self.folder} takes no file ({error.strerror})") from None
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(self.folder)
        return target

    def oldest(self) -> Path | None:
        """The file that waits longest, waiting here for one that was only just written; None if there is none."""
        while True:
            found = [path for path in self.folder.glob("*.jsonl") if path.is_file() and path.name[0] != "."]
            aged = sorted((path.stat().st_mtime, path.name, path) for path in found[:MOST_FILES])
            if not aged:
                return None
            age = time.time() - aged[0][0]
            if not 0 <= age < SETTLE_S:
                return aged[0][2]
            time.sleep(SETTLE_S - age)

    def output(self, source: Path) -> Path:
        return self._inner("out") / source.name

    def errors(self, source: Path) -> Path:
        return self._inner("out") / f"{source.stem}.errors.jsonl"

    def finish(self, source: Path) -> None:
        """Its rows are all answered or failed."""
        self._move(source, "done")

    def refuse(self, source: Path, why: str) -> None:
        """It is no input; the reason lies beside it."""
        replace(self._inner("refused") / f"{source.name}.why.txt", f"{why}\n".encode())
        self._move(source, "refused")

    def _move(self, source: Path, where: str) -> None:
        os.replace(source, self._inner(where) / source.name)
        sync_folder(self.folder / where)
        sync_folder(self.folder)

    def _inner(self, name: str) -> Path:
        inner = self.folder / name
        inner.mkdir(exist_ok=True)
        return inner

    def _free(self, stem: str) -> Path:
        """A name whose output is not there either: an older file of that name may have been answered."""
        for n in range(1, MOST_FILES):
            name = f"{stem}.jsonl" if n == 1 else f"{stem}-{n}.jsonl"
            places = (self.folder, self.folder / "out", self.folder / "done", self.folder / "refused")
            if not any((place / name).exists() for place in places):
                return self.folder / name
        raise UsageError(f"the spool folder {self.folder} has too many files named {stem}")
