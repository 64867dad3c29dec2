"""Asks a running service over HTTP: its address, the admin key, and its refusals in its own words.

Not here: what is asked (status.py, profile.py), streams, the server.
"""

import argparse
import getpass
import http.client
import itertools
import json
import os
import secrets
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.cli.flags import data_dir
from appliance.keys import MAX_FILE_BYTES
from engine.errors import ColibriError, NotAuthorised, Unreachable, UsageError

DEFAULT_URL = "http://127.0.0.1:8080"
TIMEOUT_S = 30.0
UPLOAD_S = 600.0
"""A file of 200 MB is read, sent and looked at."""
MOST_ANSWER_BYTES = 64 << 20
# An exit code for each kind of refusal; what is not named is work that failed.
EXIT_CODES = {400: 2, 401: 2, 403: 2, 404: 2, 412: 1, 428: 2, 507: 4}


class Refused(ColibriError):
    """The service answered, and its answer is no; `facts` are the fields beside its message."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message") or f"the service answered with status {status} and no reason"))
        self.status = status
        self.code = str(error.get("code") or "refused")
        self.exit_code = EXIT_CODES.get(status, 5 if status in (502, 503, 504) else 1)
        self.facts = error


@dataclass(frozen=True)
class Remote:
    """One service and the key for its administration."""

    url: str
    key: str
    user: str
    timeout_s: float = TIMEOUT_S

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The answer's JSON (None where it is empty); underscores in a header's name become hyphens.

        Raises Unreachable when nobody answers, Refused with the service's own sentence when it says no.
        """
        sent = {"Authorization": f"Bearer {self.key}", "X-Colibri-User": self.user}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = None
        if body is not None:
            data, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        return self._send(urllib.request.Request(self.url + path, data, sent, method=method), self.timeout_s)

    def upload(self, path: str, file: Path, fields: Mapping[str, str]) -> Any:
        """Send a file as a form with further fields, without holding it in memory; else as `call`."""
        mark = f"colibri-{secrets.token_hex(16)}"
        heads = [f'name="{name}"\r\n\r\n{value}' for name, value in fields.items()]
        name = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "_" for c in file.name)
        heads.append(f'name="file"; filename="{name}"\r\nContent-Type: application/jsonl\r\n\r\n')
        text = f"\r\n--{mark}\r\nContent-Disposition: form-data; "
        first = (text + text.join(heads)).removeprefix("\r\n").encode()
        last = f"\r\n--{mark}--\r\n".encode()
        sent = {"Authorization": f"Bearer {self.key}", "X-Colibri-User": self.user}
        sent["Content-Type"] = f"multipart/form-data; boundary={mark}"
        with file.open("rb") as source:
            sent["Content-Length"] = str(len(first) + os.fstat(source.fileno()).st_size + len(last))
            parts = itertools.chain([first], iter(lambda: source.read(1 << 20), b""), [last])
            return self._send(urllib.request.Request(self.url + path, parts, sent, method="POST"), UPLOAD_S)

    def _send(self, asked: urllib.request.Request, timeout_s: float) -> Any:
        try:
            # No proxy: the address is a machine of ours, and the key must not reach another one.
            with _OPENER.open(asked, timeout=timeout_s) as answer:
                return self._read(answer)
        except urllib.error.HTTPError as answer:
            with answer:
                raise Refused(answer.code, _error(answer.read(MOST_ANSWER_BYTES))) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            words = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            raise Unreachable(f"no service answers at {self.url} ({words}); start one with 'colibri serve', "
                              "or name another address with --url") from None  # fmt: skip

    def _read(self, answer: http.client.HTTPResponse) -> Any:
        raw = answer.read(MOST_ANSWER_BYTES)
        if answer.length:  # read(n) does not mind a body that was cut
            raise Unreachable(f"the service at {self.url} ended its answer too early; ask again")
        try:
            found = json.loads(raw) if raw else None
        except (ValueError, RecursionError):
            raise self.stranger("its answer is not JSON") from None
        if raw and not isinstance(found, dict):
            raise self.stranger("its answer is no JSON object")
        return found

    def stranger(self, why: str) -> Unreachable:
        """The error for an answer that no service of ours gives."""
        return Unreachable(f"what answers at {self.url} is no Colibri service: {why}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A service of ours never redirects; following one would carry the key elsewhere."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)


def add_remote(parser: argparse.ArgumentParser) -> None:
    """The options that say which service is meant."""
    group = parser.add_argument_group("service")
    group.add_argument("--url", metavar="URL", help=f"its address (default: COLIBRI_URL, else {DEFAULT_URL})")
    words = "file with its keys (default: COLIBRI_ADMIN_KEY, else 'keys' in the data folder)"
    group.add_argument("--key-file", type=Path, metavar="FILE", help=words)


def remote(args: argparse.Namespace) -> Remote:
    """The service that a command line and the environment name."""
    url = _address(args.url or os.environ.get("COLIBRI_URL") or DEFAULT_URL)
    key = "" if args.key_file else os.environ.get("COLIBRI_ADMIN_KEY", "").strip()
    key = key or admin_key(args.key_file or data_dir(args) / "keys")
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise UsageError("the admin key holds characters that no HTTP header can carry; use letters, digits and signs")
    return Remote(url, key, who())


def who() -> str:
    """The name for the service's log: COLIBRI_USER (the launcher's), else the account's, as plain ASCII."""
    try:
        name = os.environ.get("COLIBRI_USER") or getpass.getuser()
    except (OSError, KeyError):  # a number without a name, as in the container
        name = str(os.getuid())
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in name)[:64]


def admin_key(path: Path) -> str:
    """The first admin key of a key file; raises NotAuthorised or UsageError with what to do."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        raise UsageError(
            f"there is no key file {path}; a service makes it at its first start: give its data folder in "
            "COLIBRI_DATA_DIR, the file with --key-file, or the key in COLIBRI_ADMIN_KEY"
        ) from None
    except OSError as error:
        raise NotAuthorised(
            f"the key file {path} may not be read ({error.strerror}); become the user of the service, "
            "or give the key in COLIBRI_ADMIN_KEY"
        ) from None
    lines = (line.split() for line in text.splitlines())
    secrets = [words[1] for words in lines if len(words) >= 2 and words[0] == "admin"]
    found = next((secret for secret in secrets if not secret.startswith("sha256:")), None)
    if found is None:
        more = "; of its admin keys only digests are there: give the key in COLIBRI_ADMIN_KEY" if secrets else ""
        raise NotAuthorised(f"{path} holds no line 'admin SECRET'{more}")
    return found


def _address(url: str) -> str:
    try:
        parts = urllib.parse.urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good or any(c <= " " for c in url):
        raise UsageError(f"'{url}' is no address of a service; it looks like {DEFAULT_URL}")
    return url.rstrip("/")


def _error(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)["error"]
        return found if isinstance(found, dict) else {}
    except (ValueError, KeyError, TypeError):
        return {}
