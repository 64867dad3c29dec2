"""HTTPS by two files: the server's context, or a sentence that says what is wrong. Not here: sockets, settings."""

import ssl
from pathlib import Path
from typing import Any

from engine.errors import UsageError

HANDSHAKE_S = 10.0
"""A client that has not finished by then is cut off; others are served meanwhile."""


def context(key_file: Path | None, cert_file: Path | None) -> ssl.SSLContext | None:
    """What to listen with: None without files. Raises UsageError for half of them or for files that are no pair."""
    if key_file is None and cert_file is None:
        return None
    if key_file is None or cert_file is None:
        raise UsageError("HTTPS needs both --ssl-key-file and --ssl-cert-file, and only one is given")
    for path in (key_file, cert_file):
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            raise UsageError(f"{path} cannot be read ({error.strerror}); check its name, owner and mode") from None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    try:
        made.load_cert_chain(cert_file, key_file, password=_no_password)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or "no PEM in it"
        raise UsageError(
            f"{cert_file} and {key_file} are no certificate and its private key in PEM ({reason}); "
            "the certificate comes first in its file, the chain behind it"
        ) from None
    return made


def listens(key_file: Path | None, cert_file: Path | None) -> dict[str, Any]:
    """What asyncio's create_server is told."""
    made = context(key_file, cert_file)
    return {} if made is None else {"ssl": made, "ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": 5.0}


def _no_password() -> str:
    """OpenSSL would ask on the terminal, where nobody sits."""
    raise UsageError("the private key has a password; write it without one: openssl pkey -in KEY -out PLAIN_KEY")
