"""Keys of the service: made at the first start, read afterwards, compared in constant time. Not here: HTTP, routes.

The file `keys` in the data folder holds one key a line (key_lines.py); lines that begin with # are comments. Operators
may change it: `refresh` takes over what a running service should know. Secrets are kept in memory as digests only, so
that neither a log nor a crash report can hold one.
"""

import contextlib
import fcntl
import hmac
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from appliance.key_lines import Key, Role, digest, key_of
from appliance.lane import Lane
from appliance.rates import Allowance, Rates
from engine.errors import UsageError

MAX_FILE_BYTES = 64 * 1024
HEADING = "# Keys of this Colibri service: role, secret, name (optional). An admin key opens the user routes too.\n"
FIRST_ROLES: tuple[Role, ...] = ("user", "admin")


class KeyRing:
    """All keys that open something: those of the settings for as long as the process lives, those of the file as it
    stands there now."""

    def __init__(self, keys: Iterable[Key] = (), path: Path | None = None) -> None:
        self._given, self._path = list(keys), path
        self._stamp = _stamp(path)
        self._written = [] if path is None else _parse(_read(path), path)
        self._rates = Rates()

    def __len__(self) -> int:
        return len(self._given) + len(self._written)

    def internal(self, name: str, lane: Lane = "batch") -> str:
        """The secret of a new user key of this process itself; it is in no file and ends with it."""
        secret = secrets.token_urlsafe(32)
        self._given.append(Key(name, "user", digest(secret), lane))
        return secret

    def find(self, secret: str) -> Key | None:
        """The key with that secret, or None; every key is compared, so that the time tells nothing."""
        wanted = digest(secret)
        found = None
        for key in (*self._given, *self._written):
            if hmac.compare_digest(key.digest, wanted):
                found = key
        return found

    def take(self, key: Key) -> Allowance | None:
        """Count a request of the key; None where it has no rate."""
        return None if key.rate is None else self._rates.take(key.digest, key.rate)

    def changed(self) -> list[Key] | None:
        """The keys of the file if it has changed since it was read last, for `replace`; reads the disk.

        Raises UsageError once for each change to something that is no key file.
        """
        stamp = _stamp(self._path)
        if self._path is None or stamp == self._stamp:
            return None
        self._stamp = stamp
        return _parse(_read(self._path), self._path)

    def replace(self, keys: list[Key]) -> None:
        """Take over the file's keys: what is not among them opens nothing any more."""
        self._written = keys
        self._rates.keep({key.digest for key in (*self._given, *keys)})


def open_keys(folder: Path, *, api_key: str | None = None, api_key_file: Path | None = None) -> tuple[KeyRing, bool]:
    """The ring of a data folder, and whether the file was made just now.

    `api_key` (several with commas) and the lines of `api_key_file` (Docker secrets) are further user keys. Raises
    UsageError when a file cannot be written or read, or holds something else than keys.
    """
    path = folder / "keys"
    made = not path.exists() and _make(path)
    keys: list[Key] = []
    if api_key is not None:
        given = [secret for secret in map(str.strip, api_key.split(",")) if secret]
        if not given:
            raise UsageError("api_key is empty; give a secret or leave the setting out")
        keys += [Key(f"api_key:{i}", "user", digest(secret)) for i, secret in enumerate(given, 1)]
    if api_key_file is not None:
        lines = [line.strip() for line in _read(api_key_file).splitlines()]
        given = [line for line in lines if line and not line.startswith("#")]
        if not given:
            raise UsageError(f"{api_key_file} holds no key; write one a line")
        keys += [Key(f"api_key_file:{i}", "user", digest(line)) for i, line in enumerate(given, 1)]
    return KeyRing(keys, path), made


def new_secret(role: Role) -> str:
    """A secret of 256 bits; its beginning says whose it is to whoever finds it in a file."""
    return f"ck-{role}-{secrets.token_urlsafe(32)}"


def change(path: Path, line: str | None = None, without: str | None = None) -> None:
    """Write the file anew with a line more, or without the one key of a name; whole or not at all.

    Comments stay. Raises UsageError when the file is none, the name is taken, unknown or given twice, or no user or
    no admin key would be left.
    """
    with _alone(path):
        _change(path, line, without)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Two who change the file at once do it one after the other."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        text = f"the folder {path.parent} cannot be opened ({error.strerror}); name another with --data-dir"
        raise UsageError(text) from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _change(path: Path, line: str | None, without: str | None) -> None:
    text = _read(path)
    lines = text.splitlines()
    keys = _parse(text, path)
    if line is not None:
        made = key_of(line)
        assert made is not None
        if any(key.name == made.name for key in keys):
            raise UsageError(f"{path} has a key named {made.name}; choose another name, or revoke that one first")
        lines.append(line)
    if without is not None:
        n = sum(key.name == without for key in keys)
        if n != 1:
            known = ", ".join(dict.fromkeys(key.name for key in keys))
            what = "no key" if n == 0 else f"{n} keys"
            raise UsageError(f"{path} has {what} named '{without}'; its keys are {known}")
        gone = next(key.digest for key in keys if key.name == without)
        lines = [text for text in lines if (key := key_of(text)) is None or key.digest != gone]
    written = "".join(f"{text}\n" for text in lines)
    _parse(written, path)
    if len(written.encode()) > MAX_FILE_BYTES:
        raise UsageError(f"{path} would be larger than {MAX_FILE_BYTES} bytes; revoke keys that nobody uses")
    try:
        draft = _draft(path, written)
        try:
            was = path.stat()
            if (was.st_uid, was.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(draft, was.st_uid, was.st_gid)  # root changes the file of the service's account
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        text = f"the key file {path} cannot be written ({error.strerror}); become the user of the service"
        raise UsageError(text) from None


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)


def _draft(path: Path, text: str) -> Path:
    """A new file beside `path`, mode 600, on the disk."""
    draft = path.with_name(f".keys.{os.getpid()}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return draft


def _make(path: Path) -> bool:
    """Write a first file with mode 600; False when another process was quicker."""
    text = HEADING + "".join(f"{role} {new_secret(role)}\n" for role in FIRST_ROLES)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = _draft(path, text)
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
        try:
            key = key_of(line)
        except UsageError as error:
            raise UsageError(f"{path} line {number} {error.message}") from None
        if key is not None:
            # What a key stored is found again by its name, so keys without one must not share their role's.
            is_taken = key.name == key.role and any(other.name == key.name for other in keys)
            keys.append(replace(key, name=f"{key.role}:{key.id[:8]}") if is_taken else key)
    for role in FIRST_ROLES:
        if not any(key.role == role for key in keys):
            raise UsageError(f"{path} holds no {role} key; add a line '{role} SECRET', or delete it for new keys")
    return keys


def read_keys(path: Path) -> list[Key]:
    """The keys of a file, or UsageError."""
    return _parse(_read(path), path)


