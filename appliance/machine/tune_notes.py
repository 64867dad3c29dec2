"""The notes that make host tuning undoable: which file held what, since which start, with one writer at a time.

The kernel forgets its settings at every start, so notes of an earlier start are void: what stands in the files then is
the host's own choice. Not here: the settings (tune.py), the command line (cli/host.py).
"""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.errors import ColibriError

STATE_NAME = "host-tune.json"
STATE_VERSION = 1
MOST_STATE_BYTES = 1 << 20
BOOT_ID = "proc/sys/kernel/random/boot_id"


class CannotTune(ColibriError):
    """The host would not let us, or the notes cannot be believed; the message says what was changed, if anything."""

    code = "host_tune_failed"


@dataclass(frozen=True)
class Change:
    """One write: `path` held `old` and is to hold `new`; `between` is a word of ours that may still stand there when a
    second apply was killed before its write."""

    path: str
    old: str
    new: str
    between: str = ""


def boot_id(root: Path) -> str:
    """What tells one start of the machine from the next; empty where the kernel does not say."""
    try:
        return (root / BOOT_ID).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def recorded(state: Path, boot: str = "") -> list[Change]:
    """The changes noted in the state file since this start, oldest first; none when there is no file."""
    try:
        # O_NONBLOCK: a pipe in the file's place must not keep us waiting for a writer.
        with open(os.open(state, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="utf-8") as file:
            found = json.loads(file.read(MOST_STATE_BYTES))
        if found["version"] != STATE_VERSION:
            raise ValueError(f"version {found['version']!r}")
        changes = [Change(**row) for row in found["changes"]]
        if not all(isinstance(word, str) for c in changes for word in asdict(c).values()):
            raise ValueError("a value that is not text")
        is_void = bool(boot) and str(found.get("boot") or boot) != boot
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CannotTune(f"{state} cannot be read as host-tune's notes ({error}); nothing was changed; "
                         "restore it, or remove it if the host may stay as it is") from None  # fmt: skip
    return [] if is_void else changes


def save(state: Path, changes: list[Change], boot: str = "") -> None:
    """Replace the state file in one step, on disk before anything else happens; no changes, no file."""
    try:
        for left in state.parent.glob(f".{state.name}.*"):  # of a writer that was killed
            left.unlink(missing_ok=True)
        if not changes:
            state.unlink(missing_ok=True)
            return
        handle, name = tempfile.mkstemp(dir=state.parent, prefix=f".{state.name}.")
        with open(handle, "w", encoding="utf-8") as file:
            rows = [asdict(c) for c in changes]
            json.dump({"version": STATE_VERSION, "boot": boot, "changes": rows}, file, indent=1)
            os.fchmod(file.fileno(), 0o644)  # `status` is for everybody
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, state)
        folder = os.open(state.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise CannotTune(f"the old values cannot be noted in {state}: {error.strerror}; nothing was changed") from None


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Hold the notes against every other apply and revert; the kernel lets go when the holder dies."""
    try:
        state.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(state.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise CannotTune(f"the old values cannot be noted in {state}: {error.strerror}; nothing was changed; "
                         "run it as root, or name another file with --state") from None  # fmt: skip
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CannotTune("another host-tune is changing this host now; nothing was changed; "
                             "run it again when that one has ended") from None  # fmt: skip
        yield
    finally:
        os.close(handle)
