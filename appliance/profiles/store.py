"""Where profiles are kept: packaged, edited, as drafts, and in every version. Not here: what is right (check.py).

    <data>/profiles/NAME.yaml                  the edit in force; without one the packaged file counts
    <data>/profiles/.history/NAME/0007.yaml    every version that was saved; 0007.json: when, by whom, why
    <data>/profiles/.drafts/NAME.yaml          unfinished text, which may be wrong

Revision 0 is the file as shipped. A file that somebody changed with an editor counts as the next revision at once, and
is put into the history before anything is written over it. Writers of all processes take turns by a lock.
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from appliance.profiles.check import Checked, examine
from appliance.profiles.disk import locked, make_folder, read_bounded, remove, replace
from appliance.profiles.problems import BadProfile, Conflict, NoSuchProfile, NotSaved, Protected, nearest
from appliance.profiles.schema import NAME
from appliance.profiles.strict import MOST_BYTES
from engine.errors import UsageError

PACKAGED = Path(__file__).resolve().parents[2] / "profiles"
FALLBACK = "fallback"
BY_HAND = "edited by hand"
Source = Literal["packaged", "edited"]


@dataclass(frozen=True, slots=True)
class StoredText:
    """A profile's text as it lies there, right or wrong."""

    name: str
    rev: int
    etag: str
    source: Source
    text: str
    saved: float
    by: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile that is right; `values` are flat, as `settings.resolve` takes them, without the name."""

    name: str
    rev: int
    etag: str
    summary: str
    source: Source
    text: str
    values: dict[str, Any]


def etag_of(content: bytes | str) -> str:
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    return sha256(raw).hexdigest()[:16]


class ProfileStore:
    def __init__(self, data_dir: Path, packaged: Path = PACKAGED) -> None:
        self.folder = data_dir / "profiles"
        self.packaged = packaged
        self._history, self._drafts = self.folder / ".history", self.folder / ".drafts"

    # Reading

    def names(self, *, drafts: bool = False) -> list[str]:
        """Every name that has a file, right or wrong; with `drafts` those too that are a draft and nothing else."""
        folders = [self.folder, self.packaged, *([self._drafts] if drafts else [])]
        with _told(self.folder, "read"):
            found = {p.stem for f in folders if f.is_dir() for p in f.glob("*.yaml") if p.is_file()}
        return sorted(name for name in found if re.fullmatch(NAME, name))

    def misnamed(self) -> list[str]:
        """YAML files of the folder that can be no profile for their name alone."""
        with _told(self.folder, "read"):
            found = [p for p in self.folder.glob("*") if p.suffix in (".yaml", ".yml") and p.name[0] != "."]
        return sorted(p.name for p in found if p.suffix == ".yml" or not re.fullmatch(NAME, p.stem))

    def load(self, name: str, rev: int | None = None) -> Profile:
        """Raises NoSuchProfile with the nearest name, or BadProfile with all problems."""
        stored, raw = self._stored(name, rev)
        checked = examine(raw, name, self.names())
        if not checked.is_good:
            raise BadProfile.of(f"profile {name}", checked.problems)
        return _profile(stored, checked)

    def text(self, name: str, rev: int | None = None) -> StoredText:
        """The text of a version, the one in force unless `rev` says otherwise; also of a file that is wrong."""
        return self._stored(name, rev)[0]

    def examine(self, name: str, text: bytes | str | None = None) -> Checked:
        """A text, or the file in force, judged as this profile."""
        return examine(self._stored(name, None)[1] if text is None else text, name, [*self.names(), name])

    def draft(self, name: str) -> StoredText | None:
        path = self._drafts / f"{_named(name)}.yaml"
        with _told(path, "read"):
            raw = read_bounded(path, MOST_BYTES)
            if raw is None:
                return None
            now = self._now(name)
            return StoredText(name, now[0].rev if now else 0, etag_of(raw), "edited", _shown(raw), path.stat().st_mtime)

    def history(self, name: str) -> list[dict[str, Any]]:
        """Every version there is, newest first: rev, saved, by, note, etag. Also of a profile that was deleted."""
        _named(name)
        with _told(self._history, "read"):
            found = [self._version(name, rev) for rev in self._revs(name)]
            now = self._now(name)
        versions = [version[0] for version in found if version]
        if now and all(version.rev != now[0].rev for version in versions):
            versions.append(now[0])
        if (first := self._shipped(name)) and (not now or now[0].rev):
            versions.append(first[0])
        if not versions:
            self._stored(name, None)
        return [{"rev": v.rev, "saved": v.saved, "by": v.by, "note": v.note, "etag": v.etag}
                for v in sorted(versions, key=lambda v: -v.rev)]  # fmt: skip

    # Writing

    def save(self, name: str, text: str, *, if_match: str | None, by: str = "", note: str = "",
             draft: bool = False) -> Profile | StoredText:  # fmt: skip
        """A new version, or with `draft` a text that may be wrong and takes no effect.

        `if_match` is the etag of what is replaced: for a draft the draft's where there is one, else the profile's; None
        says that there is none. Raises Conflict when that is not so any more, BadProfile, NotSaved.
        """
        _named(name)
        with _told(self.folder, "written"), locked(self.folder):
            if draft:
                return self._save_draft(name, text, if_match)
            now = self._now(name)
            _match(name, if_match, now[0].etag if now else None)
            checked = examine(text, name, [*self.names(), name])
            if not checked.is_good:
                raise BadProfile.of(f"profile {name}", checked.problems)
            if now and now[1] == text.encode():
                remove(self._drafts / f"{name}.yaml")
                return _profile(now[0], checked)
            self._archive(name, now)
            rev = max(self._revs(name), default=0) + 1
            stored = StoredText(name, rev, etag_of(text), "edited", text, time.time(), by[:100], note[:1000])
            # This order: a kill in between leaves a file that counts as revision `rev`, changed by hand.
            replace(self.folder / f"{name}.yaml", text.encode())
            self._keep(stored, text.encode())
            remove(self._drafts / f"{name}.yaml")
            return _profile(stored, checked)

    def discard(self, name: str) -> None:
        """Throw the draft away."""
        _named(name)
        with _told(self.folder, "written"), locked(self.folder):
            remove(self._drafts / f"{name}.yaml")

    def delete(self, name: str, *, if_match: str, by: str = "") -> None:
        """Take the edit away: the packaged file counts again, or there is no such profile. Its history stays."""
        _named(name)
        if name == FALLBACK:
            raise Protected(f"'{FALLBACK}' is what starts when nothing else does; change it, it cannot be deleted")
        with _told(self.folder, "written"), locked(self.folder):
            stored = self._stored(name, None)[0]
            _match(name, if_match, stored.etag)
            if not stored.rev:
                raise Protected(f"'{name}' is as shipped; there is no edit of it to delete")
            if not self._shipped(name) and (users := self._users(name)):
                raise Protected(f"'{name}' is the fallback of {', '.join(users)}; change that first")
            self._archive(name, self._now(name))
            remove(self.folder / f"{name}.yaml")
            remove(self._drafts / f"{name}.yaml")

    def _save_draft(self, name: str, text: str, if_match: str | None) -> StoredText:
        before, now = self.draft(name), self._now(name)
        _match(name, if_match, before.etag if before else now[0].etag if now else None)
        try:
            raw = text.encode()
        except UnicodeEncodeError:
            raise BadProfile.of(f"profile {name}", examine(text, name, ()).problems) from None
        if len(raw) > MOST_BYTES:
            raise BadProfile.of(f"profile {name}", examine(text, name, ()).problems)
        make_folder(self._drafts)
        replace(self._drafts / f"{name}.yaml", raw)
        return StoredText(name, now[0].rev if now else 0, etag_of(raw), "edited", text, time.time())

    # Files

    def _stored(self, name: str, rev: int | None) -> tuple[StoredText, bytes]:
        _named(name)
        with _told(self.folder, "read"):
            found = now = self._now(name)
            if rev is not None and (not now or now[0].rev != rev):
                found = self._version(name, rev) if rev else self._shipped(name)
        if found:
            return found
        if now or (rev is not None and self._revs(name)):
            revs = ", ".join(map(str, sorted({*self._revs(name), *([now[0].rev] if now else [])})))
            raise NoSuchProfile(f"the profile '{name}' has no revision {rev}; there are: {revs}", param="rev")
        known = self.names()
        near = nearest(name, known)
        tail = f"; did you mean '{near}'?" if near else ""
        raise NoSuchProfile(f"there is no profile '{name}' among {', '.join(known)}{tail}", param="name")

    def _now(self, name: str) -> tuple[StoredText, bytes] | None:
        """What is in force: the edit, else the packaged file."""
        path = self.folder / f"{name}.yaml"
        raw = read_bounded(path, MOST_BYTES)
        if raw is None:
            return self._shipped(name)
        last = max(self._revs(name), default=0)
        kept = self._version(name, last)
        if kept and kept[1] == raw:
            return kept
        saved = path.stat().st_mtime if path.exists() else time.time()
        return StoredText(name, last + 1, etag_of(raw), "edited", _shown(raw), saved, "", BY_HAND), raw

    def _shipped(self, name: str) -> tuple[StoredText, bytes] | None:
        path = self.packaged / f"{name}.yaml"
        if (raw := read_bounded(path, MOST_BYTES)) is None:
            return None
        return StoredText(name, 0, etag_of(raw), "packaged", _shown(raw), path.stat().st_mtime, "", "as shipped"), raw

    def _revs(self, name: str) -> list[int]:
        return sorted(int(p.stem) for p in (self._history / name).glob("[0-9]*.yaml") if p.stem.isdecimal())

    def _version(self, name: str, rev: int) -> tuple[StoredText, bytes] | None:
        path = self._history / name / f"{rev:04d}.yaml"
        if (raw := read_bounded(path, MOST_BYTES)) is None:
            return None
        try:
            facts = json.loads(read_bounded(path.with_suffix(".json"), MOST_BYTES) or b"{}")
            saved, by, note = float(facts["saved"]), str(facts["by"]), str(facts["note"])
        except (ValueError, KeyError, TypeError, RecursionError):
            saved, by, note = path.stat().st_mtime, "", ""
        return StoredText(name, rev, etag_of(raw), "edited", _shown(raw), saved, by, note), raw

    def _archive(self, name: str, now: tuple[StoredText, bytes] | None) -> None:
        """Nothing is written over that is not in the history."""
        if now and now[0].rev and now[0].rev not in self._revs(name):
            self._keep(*now)

    def _keep(self, stored: StoredText, raw: bytes) -> None:
        path = self._history / stored.name / f"{stored.rev:04d}.yaml"
        make_folder(path.parent)
        facts = {"saved": stored.saved, "by": stored.by, "note": stored.note}
        replace(path.with_suffix(".json"), json.dumps(facts).encode())
        replace(path, raw)

    def _users(self, name: str) -> list[str]:
        return [n for n in self.names() if n != name and self.examine(n).values.get("fallback") == name]


def _profile(stored: StoredText, checked: Checked) -> Profile:
    return Profile(stored.name, stored.rev, stored.etag, checked.summary, stored.source, stored.text, checked.values)


def _named(name: str) -> str:
    if not re.fullmatch(NAME, name):
        raise UsageError(f"'{name[:80]}' is no profile name; small letters, digits, '.', '_' and '-' are", param="name")
    return name


def _match(name: str, given: str | None, there: str | None) -> None:
    if given != there and not (given == "*" and there):
        words = f"was changed to {there} meanwhile" if there else "is not there any more"
        if given is None:
            words = "is there already; say which version is replaced"
        raise Conflict(f"the profile '{name}' {words}; look at it and save again", param="name", etag=there)


def _shown(raw: bytes) -> str:
    return raw[:MOST_BYTES].decode("utf-8-sig", "replace")


@contextmanager
def _told(path: Path, act: str) -> Iterator[None]:
    """The system's refusal as one sentence with the owner and the mode."""
    try:
        yield
    except OSError as error:
        where = Path(error.filename) if isinstance(error.filename, str) else path
        there = next((p for p in (where, *where.parents) if p.exists()), path)
        try:
            facts = there.stat()
            owner = f"; {there} belongs to uid {facts.st_uid}, mode {facts.st_mode & 0o7777:o}"
        except OSError:
            owner = ""
        words = f"the profiles in {path} cannot be {act} ({error.strerror}{owner})"
        raise (NotSaved if act == "written" else UsageError)(words) from None
