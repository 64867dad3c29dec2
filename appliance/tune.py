"""Host tuning with undo: what two kernel settings are, what they should be, and how to put the old values back.

    show     each setting, its value, the value wanted and why      reads only
    plan     the writes that `apply` would make                     reads only
    apply    notes the old value in a state file, then writes       needs root
    revert   writes the old values back and forgets them            needs root

Only the files named in `settings()` are ever written, and only with a word that the file itself offers: a state file
that somebody edited cannot reach further. A value that somebody else changed after us is left alone and reported.
Not here: reading the machine for the planner (host.py), the command line (cli/host.py).
"""

import json
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.errors import ColibriError, UsageError

STATE_NAME = "host-tune.json"
STATE_VERSION = 1
MOST_STATE_BYTES = 1 << 20
THP = "sys/kernel/mm/transparent_hugepage/enabled"
CPUS = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"
THP_CHOICES = ("madvise", "always")


class CannotTune(ColibriError):
    """The host would not let us, or the state file cannot be believed; nothing was changed."""

    code = "host_tune_failed"


@dataclass(frozen=True)
class Setting:
    """One kernel setting: `path` is relative to the root, `options` are the words it takes, `wanted` may be None."""

    name: str
    path: str
    value: str
    options: tuple[str, ...]
    wanted: str | None
    reason: str


@dataclass(frozen=True)
class Change:
    """One write: `path` held `old` and is to hold `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Undone:
    """What became of one recorded change: done, already (the old value stood there), or foreign (left alone)."""

    change: Change
    outcome: str
    value: str


def settings(root: Path, thp: str = "madvise", governor: str = "performance") -> list[Setting]:
    """What this host offers of the settings we know, one row per file. A missing file is a missing row."""
    found = []
    text = _read(root / THP)
    if text is not None:
        options, value = _bracketed(text)
        wanted, reason = _thp(value, thp)
        found.append(Setting("thp", THP, value, options, wanted if wanted in options else None, reason))
    for folder in sorted((root / CPUS).glob("cpu[0-9]*"), key=lambda p: int(p.name[3:])):
        value = _read(folder / "cpufreq" / "scaling_governor") or ""
        options = tuple((_read(folder / "cpufreq" / "scaling_available_governors") or "").split())
        if not value:
            continue
        wanted = governor if governor in options and value != governor else None
        if value == governor:
            reason = f"already {governor}"
        elif wanted:
            reason = f"{governor} keeps the clock up between tokens; it costs heat and power"
        else:
            reason = f"the driver offers {' '.join(options) or 'no choice'}, not {governor}"
        path = f"{CPUS}/{folder.name}/cpufreq/scaling_governor"
        found.append(Setting(f"governor.{folder.name}", path, value, options, wanted, reason))
    return found


def numa_nodes(root: Path) -> list[dict[str, object]]:
    """Each memory node with its CPUs and bytes, as the kernel tells it; empty where there are no nodes."""
    nodes: list[dict[str, object]] = []
    for folder in sorted((root / NODES).glob("node[0-9]*"), key=lambda p: int(p.name[4:])):
        total = re.search(r"MemTotal:\s+(\d+) kB", _read(folder / "meminfo") or "")
        n_bytes = int(total[1]) * 1024 if total else None
        nodes.append({"node": int(folder.name[4:]), "cpus": _read(folder / "cpulist") or "", "memory_bytes": n_bytes})
    return nodes


def plan(rows: Iterable[Setting]) -> list[Change]:
    """The writes that would bring every setting to the value wanted."""
    return [Change(row.path, row.value, row.wanted) for row in rows if row.wanted not in (None, row.value)]


def apply(root: Path, state: Path, changes: list[Change]) -> list[Change]:
    """Make the changes, all or none; the old value of each is on disk before its new one is written."""
    if not changes:
        return []
    _refuse_without_right(root, (c.path for c in changes))
    before = recorded(state)
    kept = {c.path: c for c in before}
    # The oldest value wins: after two different applies, revert goes back to the host as it was found.
    merged = {**kept, **{c.path: Change(c.path, kept[c.path].old if c.path in kept else c.old, c.new) for c in changes}}
    _save(state, list(merged.values()))
    written: list[Change] = []
    try:
        for change in changes:
            _write(root, change.path, change.new)
            written.append(change)
    except CannotTune:
        for change in reversed(written):
            _write(root, change.path, change.old)
        _save(state, before)
        raise
    return written


def revert(root: Path, state: Path, *, dry: bool = False) -> list[Undone]:
    """Put the recorded old values back, newest first; with `dry` only say what would be done."""
    changes = recorded(state)
    allowed = {row.path: row for row in settings(root)}
    undone, todo = [], []
    for change in reversed(changes):
        row = allowed.get(change.path)
        if row is None or change.old not in row.options:
            raise CannotTune(f"{state} asks to write {change.old!r} to /{change.path}, which this host does not offer; "
                             "nothing was changed; remove the file if the host is another one now")  # fmt: skip
        if row.value == change.new:
            todo.append(change)
            outcome = "done"
        else:
            outcome = "already" if row.value == change.old else "foreign"
        undone.append(Undone(change, outcome, row.value))
    if dry:
        return undone
    _refuse_without_right(root, (c.path for c in todo))
    for change in todo:
        _write(root, change.path, change.old)
    if changes:
        state.unlink(missing_ok=True)
    return undone


def recorded(state: Path) -> list[Change]:
    """The changes noted in the state file, oldest first; none when there is no file."""
    try:
        with open(os.open(state, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as file:
            found = json.loads(file.read(MOST_STATE_BYTES))
        if found["version"] != STATE_VERSION:
            raise ValueError(f"version {found['version']!r}")
        changes = [Change(**row) for row in found["changes"]]
        if not all(isinstance(word, str) for c in changes for word in asdict(c).values()):
            raise ValueError("a value that is not text")
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CannotTune(f"{state} cannot be read as host-tune's notes ({error}); nothing was changed; "
                         "restore it, or remove it if the host may stay as it is") from None  # fmt: skip
    return changes


def _thp(value: str, asked: str) -> tuple[str | None, str]:
    if asked not in THP_CHOICES:
        raise UsageError(f"thp is {asked!r}; it may be {' or '.join(THP_CHOICES)}", param="thp")
    if value == asked:
        return None, f"already {asked}"
    if asked == "always":
        return "always", "asked for; programs that never asked get huge pages too"
    if value == "never":
        return "madvise", "the engine asks for huge pages per arena; never refuses it"
    return None, f"{value} already gives the engine what it asks for"


def _bracketed(text: str) -> tuple[tuple[str, ...], str]:
    """`always [madvise] never` is three options, the second chosen."""
    words = text.split()
    chosen = next((w[1:-1] for w in words if w.startswith("[") and w.endswith("]")), "")
    return tuple(w.strip("[]") for w in words), chosen


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


def _refuse_without_right(root: Path, paths: Iterable[str]) -> None:
    closed = [path for path in paths if not os.access(root / path, os.W_OK)]
    if closed:
        raise CannotTune(f"/{closed[0]} may not be written by this user here; nothing was changed; "
                         "run it as root on the host, or docker compose run --rm host-tune")  # fmt: skip


def _write(root: Path, path: str, word: str) -> None:
    try:
        with open(root / path, "w", encoding="ascii") as file:
            file.write(word)
    except OSError as error:
        raise CannotTune(f"the kernel refused {word!r} for /{path}: {error.strerror}; what was written before it is "
                         "undone") from None  # fmt: skip


def _save(state: Path, changes: list[Change]) -> None:
    """Replace the state file in one step, on disk before anything else happens; no changes, no file."""
    if not changes:
        state.unlink(missing_ok=True)
        return
    try:
        state.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=state.parent, prefix=f".{state.name}.")
        with open(handle, "w", encoding="utf-8") as file:
            json.dump({"version": STATE_VERSION, "changes": [asdict(c) for c in changes]}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, state)
    except OSError as error:
        raise CannotTune(f"the old values cannot be noted in {state}: {error.strerror}; nothing was changed") from None
