"""Sockets that misbehave by the dozen: others are answered meanwhile, and nothing is left of them afterwards."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.appliance.api.service import Service, service
from tests.appliance.api.test_leaving import active, raw, until, waiting

pytestmark = pytest.mark.asyncio(loop_scope="module")
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
EACH = 20


@contextlib.asynccontextmanager
async def sockets(running: Service, n: int) -> AsyncIterator[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    pairs = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(n)]
    try:
        yield pairs
    finally:
        for _, writer in pairs:
            writer.transport.abort()


async def others_are_answered(running: Service) -> None:
    async with asyncio.timeout(30):
        assert (await running.call("GET", "/livez", Authorization=""))[0] == 200
        status, body, _ = await running.chat()
        assert (status, body["choices"][0]["message"]["content"]) == (200, "hello")


async def test_half_sent_requests_hold_nobody_up(shared: Service) -> None:
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"
    begun = (b"", b"POS", HEAD, HEAD + b"X-Slow: a", raw(shared)[:-5], chunked)
    async with sockets(shared, EACH * len(begun)) as pairs:
        for i, (_, writer) in enumerate(pairs):
            writer.write(begun[i % len(begun)])
        for _ in range(5):  # and they go on, byte by byte
            await others_are_answered(shared)
            for i, (_, writer) in enumerate(pairs):
                if i % len(begun) == 3:
                    writer.write(b"a")
    await others_are_answered(shared)


@pytest.mark.parametrize(
    "head",
    [
        HEAD + b"X-Large: " + b"a" * 4_000_000,
        HEAD + b"".join(b"X-%d: a\r\n" % i for i in range(100_000)),
        b"GET /" + b"a" * 4_000_000,
        HEAD + b"Authorization: Bearer " + b"k" * 100_000 + b"\r\n\r\n",
    ],
    ids=["one-large", "many", "path", "key"],
)
async def test_huge_heads_are_refused_without_being_kept(shared: Service, head: bytes) -> None:
    async with sockets(shared, EACH) as pairs:

        async def push(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            with contextlib.suppress(ConnectionError):
                writer.write(head)
                await writer.drain()
            try:
                return await reader.read(65536)
            except ConnectionError:
                return b""  # refused while it still sent

        async with asyncio.timeout(60):
            pushing = [asyncio.create_task(push(*pair)) for pair in pairs]
            await others_are_answered(shared)
            for answer in await asyncio.gather(*pushing):
                assert answer == b"" or answer.split(b" ")[1] in (b"400", b"401", b"431"), answer[:80]
    await others_are_answered(shared)


async def test_half_closed_sockets_leave_nothing_behind(tmp_path: Path) -> None:
    async with service(tmp_path, options={"text": "abc", "step_s": 0.02}, parallel=1) as slow:
        async with sockets(slow, 2) as pairs:
            for i, (_, writer) in enumerate(pairs):
                writer.write(raw(slow, stream=bool(i % 2)))
                writer.write_eof()
            await until(lambda: not active(slow) and not waiting(slow), 30)
        status, body, _ = await slow.chat(max_tokens=3)
        assert (status, body["usage"]["completion_tokens"]) == (200, 3)


async def test_streams_that_nobody_reads_delay_only_themselves(tmp_path: Path) -> None:
    async with service(tmp_path, options={"text": "abc", "step_s": 0.0}) as quick:
        async with sockets(quick, 4) as pairs:
            for _, writer in pairs:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(raw(quick, stream=True))
            async with asyncio.timeout(30):
                assert (await quick.chat(max_tokens=3))[0] == 200
                assert (await quick.call("GET", "/livez", Authorization=""))[0] == 200
        await until(lambda: not active(quick) and not waiting(quick), 30)


@pytest.mark.parametrize("header", [b"no colon", b"Na me: x", b"X: " + b"a" * 100_000, b": x"])
async def test_a_form_whose_parts_have_spoilt_headers_is_refused_in_words(shared: Service, header: bytes) -> None:
    form = b"--b\r\nContent-Disposition: form-data; name=file\r\n" + header + b"\r\n\r\n{}\r\n--b--\r\n"
    status, body, _ = await shared.call("POST", "/v1/files", form, Content_Type="multipart/form-data; boundary=b")
    assert (status, body["error"]["type"]) == (400, "invalid_request_error")
