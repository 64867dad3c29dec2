"""One line of the key file and the key it means, both ways. Not here: the file, who may do what with a key.

    role secret [name] [lane=batch] [rate=60] [models=a,b] [profiles=x,y]

The secret may stand there as `sha256:` and 64 hex digits: then the file opens nothing for whoever reads it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from appliance.lane import LANES, Lane
from engine.errors import UsageError

Role = Literal["user", "admin", "metrics"]
ROLES: tuple[Role, ...] = ("user", "admin", "metrics")
Access = Literal["probe", "watch", "user", "admin"]
"""probe: anyone. watch: numbers only. user: the model. admin: what the service is."""
OPENS: dict[Role, tuple[Access, ...]] = {
    "metrics": ("watch",), "user": ("watch", "user"), "admin": ("watch", "user", "admin"),
}  # fmt: skip
FORM = "role secret [name] [lane=…] [rate=…] [models=…] [profiles=…]"
NAME = re.compile(r"[A-Za-z0-9._:@-]{1,64}")
HASHED = re.compile(r"sha256:[0-9a-f]{64}")
MOST_RATE = 10_000
MOST_NAMES = 64


@dataclass(frozen=True, slots=True)
class Key:
    """A known key: `name` may be shown, `digest` is all that is left of the secret.

    `rate` is requests a minute, None for no limit; empty `models` and `profiles` allow all.
    """

    name: str
    role: Role
    digest: bytes = field(repr=False)
    lane: Lane = "interactive"
    rate: int | None = None
    models: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Tells keys apart that have the same name."""
        return self.digest.hex()

    def may(self, access: Access) -> bool:
        """Whether this key opens routes of that kind; the admin key opens all."""
        return access == "probe" or access in OPENS[self.role]

    def may_use(self, models: tuple[str, ...], profile: str | None) -> bool:
        """Whether this key may be answered by what is served now: a model's names, and its profile if it has one."""
        return (not self.models or not set(self.models).isdisjoint(models)) and (
            not self.profiles or profile in self.profiles
        )


ANYONE = Key("nobody", "user", b"")
"""Who asks without a key where none is needed."""


def digest(secret: str) -> bytes:
    """What is kept of a secret. It is drawn, not thought up: 256 bits need no salt."""
    # A header's bytes above 127 arrive as surrogates; they may be compared like any other.
    return sha256(secret.encode("utf-8", "surrogateescape")).digest()


def key_of(line: str) -> Key | None:
    """The key of a line, None for a comment; raises UsageError whose message never holds the secret."""
    words = line.split()
    if not words or words[0].startswith("#"):
        return None
    role = next((r for r in ROLES if r == words[0]), None)
    if role is None or len(words) < 2:
        raise UsageError(f"should read '{FORM}' with the role {', '.join(ROLES)}")
    secret, rest = words[1], words[2:]
    if secret.startswith("sha256:") and HASHED.fullmatch(secret) is None:
        raise UsageError("has a secret that begins with sha256: but no 64 hex digits behind it; make the key again")
    name = rest.pop(0) if rest and "=" not in rest[0] else role
    if NAME.fullmatch(name) is None:
        raise UsageError("has a name with other characters than letters, digits and . _ : @ -, or more than 64")
    found: dict[str, Any] = {}
    for word in rest:
        option, equals, value = word.partition("=")
        if option not in OPTIONS or not equals:
            raise UsageError(f"should read '{FORM}', and nothing else stands behind the name")
        if option in found:
            raise UsageError(f"gives {option} twice")
        found[option] = OPTIONS[option](value)
    kept = bytes.fromhex(secret.removeprefix("sha256:")) if secret.startswith("sha256:") else digest(secret)
    return Key(name, role, kept, **found)


def line_of(key: Key) -> str:
    """The line of a key, without its secret: the digest stands there."""
    parts = [key.role, f"sha256:{key.digest.hex()}", key.name]
    parts += [f"lane={key.lane}"] if key.lane != "interactive" else []
    parts += [f"rate={key.rate}"] if key.rate is not None else []
    parts += [f"models={','.join(key.models)}"] if key.models else []
    parts += [f"profiles={','.join(key.profiles)}"] if key.profiles else []
    return " ".join(parts)


def lane(word: str) -> Lane:
    """A lane's name, or UsageError."""
    for known in LANES:
        if word == known:
            return known
    raise UsageError(f"should have lane={' or lane='.join(LANES)}")


def rate(word: str) -> int:
    """Requests a minute, or UsageError."""
    if not (word.isascii() and word.isdecimal() and len(word) <= 5 and 1 <= int(word) <= MOST_RATE):
        raise UsageError(f"should have rate=N, requests a minute from 1 to {MOST_RATE}")
    return int(word)


def names(word: str) -> tuple[str, ...]:
    """Names with commas, or UsageError: an empty list would allow all, which nobody who writes one means."""
    found = tuple(part for part in word.split(",") if part)
    if not 1 <= len(found) <= MOST_NAMES or any(c.isspace() or not c.isprintable() for c in word):
        raise UsageError(f"should have 1 to {MOST_NAMES} names with commas in models= and profiles=")
    return found


OPTIONS: dict[str, Callable[[str], Any]] = {"lane": lane, "rate": rate, "models": names, "profiles": names}
