"""What is wrong with a profile, with its place, and the errors that are made of it. Not here: finding it (check.py)."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any, Literal

from engine.errors import ColibriError, UsageError

# Orders to a terminal, half characters, and signs that turn the direction of a line.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Problem:
    """One complaint: 1-based place, the key's path, a sentence, and what was probably meant (may be empty)."""

    line: int
    col: int
    severity: Literal["error", "warning"]
    path: str
    message: str
    hint: str = ""

    def __post_init__(self) -> None:
        """A file's own words may hold anything; a problem is one line that a terminal can show."""
        for name, most in (("message", 300), ("path", 80), ("hint", 80)):
            words = CONTROL.sub("\ufffd", " ".join(getattr(self, name).split()))
            object.__setattr__(self, name, words if len(words) <= most else f"{words[: most - 3]}...")

    def sentence(self) -> str:
        return self.message + (f" (did you mean '{self.hint}'?)" if self.hint else "")

    def json(self) -> dict[str, Any]:
        return asdict(self)


def errors(problems: Sequence[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == "error"]


def nearest(wrong: str, known: Sequence[str]) -> str:
    """The known name that `wrong` looks like, or an empty string."""
    near = get_close_matches(wrong[:80], known, n=1, cutoff=0.6)
    return near[0] if near else ""


class NoSuchProfile(UsageError):
    status, code = 404, "profile_not_found"


class BadProfile(UsageError):
    """`extra["problems"]` holds them all; the message is the first one's."""

    code = "profile_invalid"

    @classmethod
    def of(cls, where: str, problems: Sequence[Problem]) -> "BadProfile":
        wrong = errors(problems)
        first = wrong[0]
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        message = f"{where} line {first.line}: {first.sentence()}{more}"
        return cls(message, param=first.path or None, problems=[problem.json() for problem in problems])


class Conflict(ColibriError):
    """Somebody else saved meanwhile; `extra["etag"]` is what is there now, None where there is nothing."""

    status, exit_code, type, code = 412, 1, "conflict_error", "profile_changed"


class Protected(ColibriError):
    status, exit_code, type, code = 409, 1, "conflict_error", "profile_protected"


class NotSaved(ColibriError):
    """The data folder cannot be written."""

    code = "profile_not_saved"
