"""Events as a stream that can be resumed, and log lines by pages."""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.appliance.api.service import Service, service

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Feed:
    """One reader of /admin/events."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def next(self) -> dict[str, Any]:
        """The fields of the next event, comments left out."""
        found: dict[str, Any] = {}
        async with asyncio.timeout(10):
            while True:
                line = (await self.answer.content.readline()).decode().rstrip("\n")
                name, _, value = line.partition(": ")
                if name:
                    found[name] = json.loads(value) if name == "data" else value
                elif "data" in found:
                    return found


async def follow(running: Service, query: str = "", **headers: str) -> Feed:
    sent = {"Authorization": f"Bearer {running.admin}", **{k.replace("_", "-"): v for k, v in headers.items()}}
    answer = await running.client.get(running.base + "/admin/events" + query, headers=sent)
    assert answer.status == 200, await answer.text()
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    return Feed(answer)


async def test_an_event_comes_when_it_happens_with_id_kind_and_data(shared: Service) -> None:
    ring = shared.services.events
    feed = await follow(shared, f"?last={ring.newest}")
    ring.tell("host", "the disk is full", "warning", free=0)
    event = await feed.next()
    assert (event["id"], event["event"]) == (ring.newest, "host")
    assert event["data"] | {"time": 0} == {
        "id": ring.newest, "time": 0, "kind": "host", "level": "warning", "text": "the disk is full", "free": 0,
    }  # fmt: skip
    feed.answer.close()


async def test_a_reader_that_comes_back_misses_nothing(shared: Service) -> None:
    ring = shared.services.events
    feed = await follow(shared, f"?last={ring.newest}")
    ring.tell("host", "first")
    seen = (await feed.next())["id"]
    feed.answer.close()
    ring.tell("host", "second")
    ring.tell("host", "third")
    again = await follow(shared, Last_Event_ID=seen)
    assert [(await again.next())["data"]["text"] for _ in range(2)] == ["second", "third"]
    again.answer.close()


@pytest.mark.parametrize("last", ["0badb007-17", "nonsense", "0badb007-999999999999999999"])
async def test_a_reader_of_an_earlier_start_is_told_of_the_gap(shared: Service, last: str) -> None:
    shared.services.events.tell("host", "something")
    feed = await follow(shared, Last_Event_ID=last)
    gap = await feed.next()
    assert (gap["event"], gap["data"]["kind"], "id" in gap) == ("gap", "gap", False)
    assert (await feed.next())["id"].startswith(shared.services.events.boot)
    feed.answer.close()


async def test_a_new_reader_begins_with_the_newest_few(shared: Service) -> None:
    ring = shared.services.events
    for i in range(60):
        ring.tell("host", f"n{i}")
    feed = await follow(shared)
    texts = [(await feed.next())["data"]["text"] for _ in range(50)]
    assert texts == [f"n{i}" for i in range(10, 60)]
    feed.answer.close()


async def test_a_head_request_is_answered_and_ends(shared: Service) -> None:
    headers = {"Authorization": f"Bearer {shared.admin}"}
    async with asyncio.timeout(5), shared.client.head(shared.base + "/admin/events", headers=headers) as answer:
        assert answer.status == 200


async def test_the_stream_ends_with_the_server_and_does_not_hold_it_up(tmp_path: Path) -> None:
    async with asyncio.timeout(15), aiohttp.ClientSession() as outlives:
        async with service(tmp_path) as running:
            last = running.services.events.newest
            running.services.events.tell("host", "the last word")
            headers = {"Authorization": f"Bearer {running.admin}", "Last-Event-ID": last}
            answer = await outlives.get(running.base + "/admin/events", headers=headers)
        assert b"the last word" in await answer.content.read(), "whole, since an end that is cut off raises"


async def test_a_reader_that_left_is_forgotten(shared: Service) -> None:
    ring = shared.services.events
    feed = await follow(shared, f"?last={ring.newest}")
    async with asyncio.timeout(10):
        while not ring._wakers:
            await asyncio.sleep(0.01)
        feed.answer.close()
        while ring._wakers:
            await asyncio.sleep(0.01)


async def page(running: Service, query: str = "") -> dict[str, Any]:
    status, body, _ = await running.call("GET", "/admin/logs" + query, Authorization=f"Bearer {running.admin}")
    assert status == 200, body
    return body


@pytest.fixture
def talkative() -> Iterator[None]:
    """The log level that `colibri serve` sets; tests have none."""
    top = logging.getLogger("colibri")
    top.setLevel(logging.INFO)
    yield
    top.setLevel(logging.NOTSET)


@pytest.mark.usefixtures("talkative")
async def test_lines_of_the_engine_and_the_api_come_page_by_page(shared: Service) -> None:
    logging.getLogger("colibri.worker").info("| %s", "kernel 3 of 9")
    await shared.chat(messages=[{"role": "user", "content": "a very private word"}])
    first = await page(shared, "?limit=1000")
    assert {"boot", "lines", "next", "dropped"} == set(first)
    assert {"engine", "api"} <= {line["source"] for line in first["lines"]}
    line = next(line for line in first["lines"] if "/v1/chat/completions" in line["text"])
    assert (line["level"], line["source"]) == ("info", "api")
    assert set(line) == {"id", "time", "level", "source", "text"}
    assert "private" not in str(first)
    assert shared.admin not in str(first)
    assert shared.user not in str(first)
    await shared.call("POST", "/tokenize", {"content": "x"})
    second = await page(shared, f"?after={first['next']}")
    assert ["POST /tokenize" in line["text"] for line in second["lines"]] == [True]


@pytest.mark.usefixtures("talkative")
async def test_reading_the_log_writes_no_line(shared: Service) -> None:
    before = await page(shared, "?limit=1")
    for _ in range(3):
        await page(shared)
    assert (await page(shared, f"?after={before['next']}"))["lines"] == []


@pytest.mark.parametrize(
    "query",
    ["after=-1", "after=x", "after=1.5", "after=%C2%B2", "limit=0", "limit=5001", "level=loud", "after=1&after=2",
     "limit=" + "9" * 400],
)  # fmt: skip
async def test_a_wrong_query_is_a_clear_400(shared: Service, query: str) -> None:
    status, body, _ = await shared.call("GET", f"/admin/logs?{query}", Authorization=f"Bearer {shared.admin}")
    assert (status, body["error"]["code"]) == (400, "unsupported_value")
    assert body["error"]["param"] == query.partition("=")[0]
