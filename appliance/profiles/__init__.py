"""Profiles: named sets of knobs in YAML, checked strictly, kept with every version. Not here: the knobs (settings.py).

A profile is a mapping of long flag names with underscores; a few groups make it easier to read. `load_profile` is what
the command line needs, `ProfileStore` what the service needs.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from appliance.profiles.changes import Change, changes
from appliance.profiles.check import Checked, check, examine
from appliance.profiles.problems import BadProfile, Conflict, NoSuchProfile, NotSaved, Problem, Protected
from appliance.profiles.schema import NAME, fields, path_of
from appliance.profiles.store import PACKAGED, Profile, ProfileStore, StoredText, etag_of
from appliance.profiles.strict import MOST_BYTES
from engine.errors import UsageError

__all__ = [
    "MOST_BYTES", "NAME", "PACKAGED", "BadProfile", "Change", "Checked", "Conflict", "NoSuchProfile", "NotSaved",
    "Problem", "Profile", "ProfileStore", "Protected", "StoredText", "changes", "check", "etag_of", "examine", "fields",
    "load_profile", "path_of", "profile_folders", "profile_names", "read_profile",
]  # fmt: skip


def profile_folders(data_dir: Path) -> list[Path]:
    """Where profiles lie, the stronger folder first: edits in the data folder overlay the packaged ones by name."""
    return [data_dir / "profiles", PACKAGED]


def profile_names(data_dir: Path) -> list[str]:
    """Every name that `load_profile` takes."""
    return ProfileStore(data_dir).names()


def load_profile(name: str, data_dir: Path) -> dict[str, Any]:
    """The values a profile sets, flat, with its `name`, as `settings.resolve` takes them; UsageError if it is wrong."""
    return {"name": name, **ProfileStore(data_dir).load(name).values}


def read_profile(path: Path, known: Sequence[str] = ()) -> dict[str, Any]:
    """The same of a file that lies anywhere; its fallback is one of `known`, the packaged ones or its neighbours."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        near = [p.stem for folder in (PACKAGED, path.parent) for p in folder.glob("*.yaml")]
    except OSError as error:
        raise UsageError(f"the profile {path} cannot be read: {error.strerror}") from None
    checked = examine(raw, path.stem, [*known, *near])
    if not checked.is_good:
        raise BadProfile.of(str(path), checked.problems)
    return {"name": path.stem, **checked.values}
