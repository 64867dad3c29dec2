"""Keys of the service: made at the first start, read afterwards, compared in constant time. Not here: HTTP, routes.

The file `keys` in the data folder holds one key a line, `role secret [name]`, role being `user` or `admin`; lines that
begin with # are comments. Operators may add lines. Secrets are kept in memory as digests only, so that neither a log
nor a crash report can hold one.
"""

import hmac
import os
import secrets
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from engine.errors import UsageError

Role = Literal["user", "admin"]
ROLES: tuple[Role, ...] = ("user", "admin")
MAX_FILE_BYTES = 64 * 1024
HEADING = "# Keys of this Colibri service: role, secret, name (optional). An admin key opens the user routes too.\n"


@dataclass(frozen=True, slots=True)
class Key:
    """A known key: `name` may be shown, `digest` is all that is left of the secret."""

    name: str
    role: Role
    digest: bytes

    def may(self, role: Role) -> bool:
        """Whether this key opens routes of `role`; the admin key opens all."""
        return role in (self.role, "user")


class KeyRing:
    """All keys that open something."""

    def __init__(self, keys: list[Key]) -> None:
        self._keys = list(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def internal(self, name: str) -> str:
        """The secret of a new user key of this process itself; it is in no file and ends with it."""
        secret = secrets.token_urlsafe(32)
        self._keys.append(Key(name, "user", _digest(secret)))
        return secret

    def find(self, secret: str) -> Key | None:
        """The key with that secret, or None; every key is compared, so that the time tells nothing."""
        digest = _digest(secret)
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found


def open_keys(folder: Path, *, api_key: str | None = None, api_key_file: Path | None = None) -> tuple[KeyRing, bool]:
    """The ring of a data folder, and whether the file was made just now.

    `api_key` (several with commas) and the lines of `api_key_file` (Docker secrets) are further user keys. Raises
    UsageError when a file cannot be written or read, or holds something else than keys.
    """
    path = folder / "keys"
    made = not path.exists() and _make(path)
    keys = _parse(_read(path), path)
    if api_key is not None:
        given = [secret for secret in map(str.strip, api_key.split(",")) if secret]
        if not given:
            raise UsageError("api_key is empty; give a secret or leave the setting out")
        keys += [Key(f"api_key:{i}", "user", _digest(secret)) for i, secret in enumerate(given, 1)]
    if api_key_file is not None:
        lines = [line.strip() for line in _read(api_key_file).splitlines()]
        given = [line for line in lines if line and not line.startswith("#")]
        if not given:
            raise UsageError(f"{api_key_file} holds no key; write one a line")
        keys += [Key(f"api_key_file:{i}", "user", _digest(line)) for i, line in enumerate(given, 1)]
    return KeyRing(keys), made


def _digest(secret: str) -> bytes:
    # A header's bytes above 127 arrive as surrogates; they may be compared like any other.
    return sha256(secret.encode("utf-8", "surrogateescape")).digest()


def _make(path: Path) -> bool:
    """Write a first file with mode 600; False when another process was quicker."""
    text = HEADING + "".join(f"{role} ck-{role}-{secrets.token_urlsafe(32)}\n" for role in ROLES)
    draft = path.with_name(f".keys.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(handle, text.encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
    except OSError as error:
        raise UsageError(
            f"the key file {path} cannot be written ({error.strerror}); give a writable folder with --data-dir"
        ) from None
    return True


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"the key file {path} cannot be read ({error.strerror}); check its owner and mode") from None
    if len(raw) > MAX_FILE_BYTES:
        raise UsageError(f"the key file {path} is larger than {MAX_FILE_BYTES} bytes; it should hold one key a line")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"the key file {path} is not UTF-8 text; it should hold one key a line") from None


def _parse(text: str, path: Path) -> list[Key]:
    keys: list[Key] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        role = next((r for r in ROLES if r == words[0]), None)
        if role is None or not 2 <= len(words) <= 3:
            raise UsageError(f"{path} line {number} should read 'user SECRET [name]' or 'admin SECRET [name]'")
        keys.append(Key(words[2] if len(words) == 3 else role, role, _digest(words[1])))
    for role in ROLES:
        if not any(key.role == role for key in keys):
            raise UsageError(f"{path} holds no {role} key; add a line '{role} SECRET', or delete it for new keys")
    return keys
