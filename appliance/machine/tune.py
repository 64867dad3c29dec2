"""Host tuning with undo: what two kernel settings are, what they should be, and how to put the old values back.

    show     each setting, its value, the value wanted and why      reads only
    plan     the writes that `apply` would make                     reads only
    apply    notes the old value in a state file, then writes       needs root
    revert   writes the old values back and forgets them            needs root

Only the files named in `settings()` are ever written, and only with a word that the file itself offers: a state file
that somebody edited cannot reach further. A value that somebody else changed after us is left alone and reported. What
was written is read again: a kernel that takes a word and shows another one has refused it.
Not here: the notes (tune_notes.py), reading the machine for the planner (host.py), the command line (cli/host.py).
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from appliance.machine.tune_notes import CannotTune, Change, alone, boot_id, recorded, save
from engine.errors import UsageError

THP = "sys/kernel/mm/transparent_hugepage/enabled"
CPUS = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"
OURS = re.compile(rf"{THP}|{CPUS}/cpu[0-9]+/cpufreq/scaling_governor")
THP_CHOICES = ("madvise", "always")


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
class Undone:
    """What became of one recorded change.

    done: put back; already: the old value stood there; foreign: somebody else's value, left alone; gone: a CPU that is
    switched off, its note is kept; stuck: the host does not take the old word any more, its note is kept.
    """

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
    boot = boot_id(root)
    with alone(state):
        now = {row.path: row.value for row in settings(root)}
        moved = next((c for c in changes if now.get(c.path, c.old) != c.old), None)
        if moved:
            raise CannotTune(f"/{moved.path} became {now[moved.path]!r} meanwhile; nothing was changed; run it again")
        before = recorded(state, boot)
        merged = {c.path: c for c in before}
        merged |= {c.path: _followed(merged.get(c.path), c) for c in changes}
        save(state, list(merged.values()), boot)
        begun: list[Change] = []
        try:
            for change in changes:
                begun.append(change)
                _write(root, change.path, change.new)
        except BaseException as error:
            stuck = [c for c in reversed(begun) if not _undone(root, c)]
            if not stuck:
                save(state, before, boot)
            elif isinstance(error, CannotTune):
                raise CannotTune(f"{error.message}; /{stuck[0].path} could not be put back either: "
                                 "its old value stays noted for revert") from None  # fmt: skip
            raise
    return changes


def revert(root: Path, state: Path, *, dry: bool = False) -> list[Undone]:
    """Put the recorded old values back, newest first; with `dry` only say what would be done. Notes whose value could
    not be put back stay."""
    if dry:
        return _judged(root, state)
    if not state.exists():
        return []
    _refuse_without_right(root, (u.change.path for u in _judged(root, state) if u.outcome == "done"))
    with alone(state):
        judged = _judged(root, state)
        undone = [
            Undone(u.change, "stuck", _value(root, u.change.path))
            if u.outcome == "done" and not _undone(root, u.change)
            else u
            for u in judged
        ]
        left = {u.change for u in undone if u.outcome in ("gone", "stuck")}
        boot = boot_id(root)
        save(state, [c for c in recorded(state, boot) if c in left], boot)
    return undone


def _followed(note: Change | None, change: Change) -> Change:
    """The note for a change of a file that may be noted already. The oldest value of an unbroken chain wins: after two
    applies, revert goes back to the host as it was found."""
    if note is None or change.old not in (note.old, note.new, note.between):
        return change
    return Change(change.path, note.old, change.new, change.old)


def _judged(root: Path, state: Path) -> list[Undone]:
    """Each note of this start, newest first, with what should become of it."""
    rows = {row.path: row for row in settings(root)}
    found = []
    for change in reversed(recorded(state, boot_id(root))):
        if not OURS.fullmatch(change.path):
            raise CannotTune(f"{state} asks to write {change.old!r} to /{change.path}, which this host does not offer "
                             "for tuning; nothing was changed; remove the file if it is not ours")  # fmt: skip
        row = rows.get(change.path)
        if row is None:
            outcome = "gone"
        elif row.value == change.old:
            outcome = "already"
        elif row.value not in (change.new, change.between):
            outcome = "foreign"
        else:
            outcome = "done" if change.old in row.options else "stuck"
        found.append(Undone(change, outcome, row.value if row else ""))
    return found


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
    """`always [madvise] never` is three options, the second chosen; a word that stands alone is chosen too."""
    words = text.split()
    only = words[0] if len(words) == 1 else ""
    chosen = next((w[1:-1] for w in words if w.startswith("[") and w.endswith("]")), only)
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
    """Write and read again; raises CannotTune when the kernel refuses, aloud or silently."""
    try:
        with open(root / path, "w", encoding="ascii") as file:
            file.write(word)
    except OSError as error:
        raise CannotTune(f"the kernel refused {word!r} for /{path}: {error.strerror}; what was written before it is "
                         "undone") from None  # fmt: skip
    shown = _value(root, path)
    if shown != word:
        raise CannotTune(f"the kernel took {word!r} for /{path} but shows {shown!r}; what was written is undone")


def _undone(root: Path, change: Change) -> bool:
    """Put the old value back; whether it stands there now."""
    try:
        if _value(root, change.path) != change.old:
            _write(root, change.path, change.old)
    except CannotTune:
        return False
    return True


def _value(root: Path, path: str) -> str:
    text = _read(root / path) or ""
    return _bracketed(text)[1] if path == THP else text
