"""Log lines as they are written, over one long answer."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.appliance.api.service import service


@pytest.fixture(autouse=True)
def talkative() -> Iterator[None]:
    """The log level that `colibri serve` sets; tests have none."""
    top = logging.getLogger("colibri")
    top.setLevel(logging.INFO)
    yield
    top.setLevel(logging.NOTSET)


async def test_lines_come_as_they_are_written_and_the_stream_ends_with_the_server(tmp_path: Path) -> None:
    log = logging.getLogger("colibri.swap")
    async with asyncio.timeout(60), aiohttp.ClientSession() as outlives:
        async with service(tmp_path) as it:
            log.info("before")
            headers = {"Authorization": f"Bearer {it.admin}"}
            seen = await outlives.get(it.base + "/logs/stream", headers=headers)
            fresh = await outlives.get(it.base + "/logs/stream?no-history", headers=headers)
            assert (seen.status, seen.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
            while not (await seen.content.readline()).endswith(b"info swap before\n"):
                pass
            for n in range(1200):
                log.info("line %d\nforged", n)
            for answer in (seen, fresh):
                for n in range(1200):
                    while b" swap " not in (line := await answer.content.readline()):
                        pass
                    assert line.endswith(b" info swap line %d forged\n" % n)
        await seen.content.read()
        await fresh.content.read()


async def test_it_is_the_admins_and_knows_its_query(tmp_path: Path) -> None:
    async with service(tmp_path) as it:
        assert (await it.call("GET", "/logs/stream", Authorization=""))[0] == 401
        assert (await it.call("GET", "/logs/stream"))[0] == 403
        status, body, _ = await it.call("GET", "/logs/stream?after=1", Authorization=f"Bearer {it.admin}")
        assert (status, body["error"]["param"]) == (400, "after")
        headers = {"Authorization": f"Bearer {it.admin}"}
        async with it.client.head(it.base + "/logs/stream", headers=headers) as answer:
            assert answer.status == 200
