"""HTTPS by two files: a client that trusts the certificate is answered, one that dawdles holds nobody up."""

import asyncio
import json
import ssl
from pathlib import Path

import openai
import pytest
import trustme

from appliance.api.tls import context
from engine.errors import UsageError
from tests.appliance.api.service import service
from tests.appliance.cli.shell import colibri

pytestmark = pytest.mark.asyncio(loop_scope="module")


def files(folder: Path) -> tuple[Path, Path, Path]:
    """Key, certificate and the authority that signed it."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    key, cert, ca = folder / "key.pem", folder / "cert.pem", folder / "ca.pem"
    issued.private_key_pem.write_to_path(str(key))
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(cert), append=True)
    authority.cert_pem.write_to_path(str(ca))
    return key, cert, ca


async def test_clients_of_every_kind_are_answered_over_tls(tmp_path: Path) -> None:
    key, cert, ca = files(tmp_path)
    trusts = ssl.create_default_context(cafile=str(ca))
    async with service(tmp_path, ssl_key_file=str(key), ssl_cert_file=str(cert)) as secure:
        url = f"https://127.0.0.1:{secure.port}"
        # Half a handshake, and plain HTTP to the door of HTTPS.
        _, silent = await asyncio.open_connection("127.0.0.1", secure.port)
        reader, plain = await asyncio.open_connection("127.0.0.1", secure.port)
        plain.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with secure.client.get(f"{url}/livez", ssl=trusts) as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "ok"})
        assert b"200" not in await reader.read()
        async with openai.AsyncOpenAI(
            base_url=f"{url}/v1", api_key=secure.user, http_client=openai.DefaultAsyncHttpxClient(verify=trusts)
        ) as client:
            chunks = [
                chunk.choices[0].delta.content or ""
                async for chunk in await client.chat.completions.create(
                    model="small", messages=[{"role": "user", "content": "hi"}], stream=True
                )
            ]
        assert "".join(chunks) == "hello"
        status = await asyncio.to_thread(
            colibri, "status", "--url", url, "--json", COLIBRI_ADMIN_KEY=secure.admin, SSL_CERT_FILE=str(ca)
        )
        assert json.loads(status.out)["state"] == "ready", status.err
        for writer in (silent, plain):
            writer.close()


async def test_files_that_are_no_pair_are_told_before_anything_starts(tmp_path: Path) -> None:
    key, cert, _ = files(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    wrong_key = files(other)[0]
    (tmp_path / "text.pem").write_text("not a key\n")
    for words, given in (
        ("both --ssl-key-file and --ssl-cert-file", (key, None)),
        ("both --ssl-key-file and --ssl-cert-file", (None, cert)),
        ("cannot be read", (tmp_path / "none.pem", cert)),
        ("no certificate and its private key", (wrong_key, cert)),
        ("no certificate and its private key", (key, tmp_path / "text.pem")),
    ):
        with pytest.raises(UsageError, match=words):
            context(*given)
    assert context(None, None) is None
    assert context(key, cert) is not None
