"""Profiles: named sets of knobs in YAML, checked strictly, kept with every version. Not here: the knobs (settings.py).

A profile is a mapping of long flag names with underscores; a few groups make it easier to read. `load_profile` is what
the command line needs, `ProfileStore` what the service needs.
"""

from pathlib import Path
from typing import Any

from appliance.profiles.changes import Change, changes
from appliance.profiles.check import Checked, check, examine
from appliance.profiles.problems import BadProfile, Conflict, NoSuchProfile, NotSaved, Problem, Protected
from appliance.profiles.schema import NAME, fields, path_of
from appliance.profiles.store import PACKAGED, Profile, ProfileStore, StoredText, etag_of
from appliance.profiles.strict import MOST_BYTES

__all__ = [
    "MOST_BYTES", "NAME", "PACKAGED", "BadProfile", "Change", "Checked", "Conflict", "NoSuchProfile", "NotSaved",
    "Problem", "Profile", "ProfileStore", "Protected", "StoredText", "changes", "check", "etag_of", "examine", "fields",
    "load_profile", "path_of",
]  # fmt: skip


def load_profile(name: str, data_dir: Path) -> dict[str, Any]:
    """The values a profile sets, flat, with its `name`, as `settings.resolve` takes them; UsageError if it is wrong."""
    return {"name": name, **ProfileStore(data_dir).load(name).values}
