"""Which lane a request waits in, how long it will, and what it is told of its place: over HTTP, a scripted engine."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.appliance.api.service import Service, ask, service

pytestmark = pytest.mark.asyncio
SOON_S = 30.0


async def until(condition: Any) -> None:
    async with asyncio.timeout(SOON_S):
        while not condition():
            await asyncio.sleep(0.01)


def jobs(service: Service, kind: str) -> list[dict[str, Any]]:
    return list(service.services.dispatcher.snapshot()[kind])


async def occupied(service: Service) -> asyncio.Task[Any]:
    """A request that has the only slot for long; its task."""
    task = asyncio.create_task(service.chat(max_tokens=400))
    await until(lambda: jobs(service, "running"))
    return task


async def let_go(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def asked(service: Service, **headers: str) -> asyncio.Task[Any]:
    return asyncio.create_task(service.call("POST", "/v1/chat/completions", ask(max_tokens=1), **headers))


async def test_the_header_chooses_a_lane_and_a_better_lane_is_asked_first(tmp_path: Path) -> None:
    async with service(tmp_path, options={"step_s": 0.05, "text": "ab"}) as busy:
        running = await occupied(busy)
        waiting = []
        for n, lane in enumerate(("batch", "fallback", "interactive"), 1):
            waiting.append(asked(busy, x_colibri_lane=lane))
            await until(lambda n=n: len(jobs(busy, "waiting")) == n)  # type: ignore[misc]
        assert [job["lane"] for job in jobs(busy, "waiting")] == ["interactive", "fallback", "batch"]
        await let_go(running)
        answers = await asyncio.wait_for(asyncio.gather(*waiting), SOON_S)
        assert [status for status, _, _ in answers] == [200, 200, 200]


async def test_a_key_of_a_lane_waits_there_and_may_ask_for_no_better_one(tmp_path: Path) -> None:
    async with service(tmp_path, options={"step_s": 0.05}) as busy:
        secret = f"Bearer {busy.services.keys.internal('night', lane='batch')}"
        running = await occupied(busy)
        waits = asked(busy, Authorization=secret)
        await until(lambda: [job["lane"] for job in jobs(busy, "waiting")] == ["batch"])
        status, body, _ = await asked(busy, Authorization=secret, x_colibri_lane="interactive")
        assert (status, body["error"]["code"]) == (403, "insufficient_permissions")
        assert "waits in the lane batch" in body["error"]["message"]
        await let_go(running, waits)


@pytest.mark.parametrize(
    ("header", "value"),
    [("x_colibri_lane", "express"), ("x_colibri_deadline_ms", "soon"), ("x_colibri_deadline_ms", "0"),
     ("x_colibri_deadline_ms", "9" * 30), ("x_colibri_deadline_ms", "1.5")],
)  # fmt: skip
@pytest.mark.asyncio(loop_scope="module")
async def test_a_header_that_says_nothing_is_refused_and_named(shared: Service, header: str, value: str) -> None:
    status, body, _ = await shared.call("POST", "/v1/chat/completions", ask(), **{header: value})
    assert (status, body["error"]["code"]) == (400, "unsupported_parameter")
    assert body["error"]["param"].replace("-", "_").lower() == header
    assert value[:40] in body["error"]["message"]


@pytest.mark.asyncio(loop_scope="module")
async def test_an_answer_that_began_at_once_says_so(shared: Service) -> None:
    _, _, headers = await shared.chat()
    assert headers["x-colibri-queue-position"] == "0"
    assert headers["x-colibri-queue-eta-ms"] == "0"


async def test_an_answer_that_waited_says_where_it_began_to(tmp_path: Path) -> None:
    async with service(tmp_path, options={"step_s": 0.02, "text": "abc."}) as busy:
        await busy.chat(max_tokens=4)  # so that speeds are known
        running = await occupied(busy)
        first = asked(busy)
        await until(lambda: len(jobs(busy, "waiting")) == 1)
        second = asked(busy)
        await until(lambda: len(jobs(busy, "waiting")) == 2)
        await let_go(running)
        (_, _, one), (_, _, two) = await asyncio.wait_for(asyncio.gather(first, second), SOON_S)
        assert [h["x-colibri-queue-position"] for h in (one, two)] == ["1", "2"]
        assert 0 < int(one["x-colibri-queue-eta-ms"]) < int(two["x-colibri-queue-eta-ms"])


async def test_a_stream_that_waits_tells_its_place_and_each_better_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.api.completions.PATIENCE_S", 0.0)
    monkeypatch.setattr("appliance.api.completions.LOOK_S", 0.05)
    async with service(tmp_path, options={"step_s": 0.05, "text": "ab."}) as busy:
        running = await occupied(busy)
        before = asked(busy)
        await until(lambda: len(jobs(busy, "waiting")) == 1)
        headers = {"Authorization": f"Bearer {busy.user}", "Content-Type": "application/json"}
        body = json.dumps(ask(stream=True))
        async with asyncio.timeout(SOON_S):
            async with busy.client.post(f"{busy.base}/v1/chat/completions", data=body, headers=headers) as stream:
                assert stream.headers["x-colibri-queue-position"] == "2"
                assert (await stream.content.readline()).startswith(b": number 2 in the queue")
                before.cancel()
                lines = [line async for line in stream.content if b"number 1 in the queue" in line or running.cancel()]
        assert len(lines) >= 1
        await let_go(running, before)


async def test_a_deadline_that_cannot_be_met_is_refused_at_once_and_one_that_passes_when_it_does(
    tmp_path: Path,
) -> None:
    async with service(tmp_path, options={"step_s": 0.05, "text": "abcdefgh"}) as busy:
        running = await occupied(busy)
        status, body, headers = await asked(busy, x_colibri_deadline_ms="200")
        assert (status, body["error"]["code"]) == (429, "queue_timeout"), body
        assert int(headers["Retry-After"]) >= 1 and int(headers["retry-after-ms"]) >= 1
        await let_go(running)
        await until(lambda: not jobs(busy, "running"))
        await busy.chat(max_tokens=9)
        running = await occupied(busy)
        status, body, headers = await asked(busy, x_colibri_deadline_ms="1")
        assert (status, body["error"]["code"]) == (429, "deadline_unreachable")
        assert int(headers["Retry-After"]) >= 1
        await let_go(running)


async def test_a_row_of_a_batch_is_never_handed_over_to_a_person(tmp_path: Path) -> None:
    async with service(
        tmp_path, options={"step_s": 0.05}, max_queue=0, max_queue_batch=0, handover="Ask a colleague."
    ) as busy:
        running = await occupied(busy)
        status, body, _ = await asked(busy)
        assert (status, body["choices"][0]["message"]["content"]) == (200, "Ask a colleague.")
        status, body, headers = await asked(busy, x_colibri_lane="batch")
        assert (status, body["error"]["code"]) == (429, "queue_full")
        assert "Retry-After" in headers
        await let_go(running)
