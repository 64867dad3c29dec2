"""Clients that go away: in the queue, in prefill, in decode, plain and streamed; nobody else is stopped by it."""

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import appliance.api.sse as sse
from tests.appliance.api.service import Service, ask, service

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHAT = "/v1/chat/completions"
# A step is slow, and 300 of them are more than any test waits for.
SLOW = {"chunk": 8, "chunk_s": 0.1, "text": "abc", "step_s": 0.05}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def slow(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """A service that takes its time; every test leaves it idle."""
    async with service(tmp_path_factory.mktemp("slow"), options=SLOW) as running:
        yield running


def raw(running: Service, **fields: Any) -> bytes:
    body = json.dumps(ask(**fields)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {running.user}\r\n"
    return head.encode() + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


@contextlib.asynccontextmanager
async def client(running: Service, **fields: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    try:
        writer.write(raw(running, **fields))
        yield reader, writer
    finally:
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()


async def until(condition: Callable[[], Any], limit_s: float = 10.0) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit_s, "it did not come to pass"
        await asyncio.sleep(0.005)
    return time.monotonic() - began


def active(running: Service) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = running.services.dispatcher.snapshot()["running"]
    return found


def waiting(running: Service) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = running.services.dispatcher.snapshot()["waiting"]
    return found


def reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("by_reset", [False, True])
async def test_leaving_frees_the_engine_for_the_next(slow: Service, stream: bool, phase: str, by_reset: bool) -> None:
    cancelled = slow.services.metrics.counts["cancelled"]
    async with client(slow, stream=stream) as (_, writer):
        await until(lambda: active(slow) and active(slow)[0]["phase"] == phase)
        if by_reset:
            reset(writer)
    # One layer of the scripted engine takes 5 ms, a step 50 to 100; the whole answer would take half a minute.
    assert await until(lambda: not active(slow)) < 2
    await until(lambda: slow.services.generations.running() == [])
    status, body, _ = await slow.chat(max_tokens=1)
    assert (status, body["choices"][0]["message"]["content"]) == (200, "a")
    assert slow.services.metrics.counts["cancelled"] == cancelled + 1


@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_the_queue_stops_nobody_else(tmp_path: Path, stream: bool) -> None:
    async with service(tmp_path, options={**SLOW, "chunk": 512}) as slow:
        first = asyncio.create_task(slow.chat(max_tokens=12))
        await until(lambda: active(slow))
        async with client(slow, stream=stream):
            await until(lambda: len(waiting(slow)) == 1)
            third = asyncio.create_task(slow.chat(max_tokens=2))
            await until(lambda: len(waiting(slow)) == 2)
        await until(lambda: len(waiting(slow)) == 1, limit_s=1)
        (status, body, _), (third_status, _, _) = await asyncio.gather(first, third)
        assert (status, third_status) == (200, 200)
        assert body["choices"][0]["message"]["content"] == "abc" * 4


async def test_a_client_that_hangs_up_while_its_pipelined_bytes_wait_is_noticed(slow: Service) -> None:
    """aiohttp stops reading when enough waits, and then cannot see the end; the connection itself is looked at."""
    async with client(slow) as (_, writer):
        await until(lambda: active(slow))
        writer.write(raw(slow, user="x" * 200_000) * 40)
        await asyncio.sleep(0.3)
        writer.transport.abort()
    assert await until(lambda: not active(slow)) < 5


async def test_a_reader_that_does_not_read_is_dropped_and_delays_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "STALL_S", 0.5)
    async with service(tmp_path, options={"text": "abcdefgh"}) as quick:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", quick.port))
        # Enough to fill every buffer between us: 8 answers of 490 events, half a kilobyte or more each.
        sock.sendall(raw(quick, stream=True, n=8, logprobs=True, top_logprobs=20, user="x" * 1000))
        await until(lambda: active(quick) or quick.services.metrics.counts["finished"])
        assert (await quick.chat(max_tokens=1))[0] == 200
        assert (await quick.call("GET", "/health"))[0] == 200
        await until(lambda: b'route="/v1/chat/completions",status="499"' in quick.services.metrics.page())
        sock.close()
        assert (await quick.chat(max_tokens=1))[0] == 200


async def test_heartbeats_keep_a_waiting_stream_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_S", 0.5)
    monkeypatch.setattr("appliance.api.completions.PATIENCE_S", 0.5)
    monkeypatch.setattr("appliance.api.completions.LOOK_S", 0.1)
    async with service(tmp_path, options={"chunk_s": 1.5, "text": "ab."}) as slow:
        first = asyncio.create_task(slow.chat())
        await until(lambda: active(slow))
        seen = await slow.events()
        await first
        comments = [event for event in seen if isinstance(event, str) and event.startswith(": ")]
        assert comments[0] == ": number 1 in the queue"
        assert ": still working" in comments
        assert seen[-1] == "[DONE]"


async def test_requests_wait_while_the_model_loads(tmp_path: Path) -> None:
    async with service(tmp_path, wait=False, options={"load_s": 1.0}) as loading:
        waits = asyncio.create_task(loading.chat())
        await until(lambda: waiting(loading))
        status, body, headers = await loading.call("GET", "/health")
        assert (status, body["error"]["code"], body["error"]["type"]) == (503, "model_loading", "unavailable_error")
        assert headers["Retry-After"]
        assert (await loading.call("GET", "/readyz"))[0] == 503
        assert (await loading.call("GET", "/livez"))[0] == 200
        assert (await waits)[0] == 200


async def test_without_a_queue_a_loading_model_is_503(tmp_path: Path) -> None:
    async with service(tmp_path, wait=False, max_queue=0, options={"load_s": 1.0}) as loading:
        status, body, headers = await loading.chat()
        assert (status, body["error"]["code"]) == (503, "model_loading")
        assert int(headers["retry-after-ms"]) > 0


async def test_a_model_that_will_never_load_is_503_and_told_to_the_admin(tmp_path: Path) -> None:
    async with service(tmp_path, wait=False, options={"load": "bad"}) as broken:
        await until(lambda: broken.services.supervisor.state == "crashed")
        assert (await broken.chat())[0] == 503
        status, body, _ = await broken.call("GET", "/health")
        assert (status, body["error"]["code"]) == (503, "engine_down")
        assert "tensor" not in body["error"]["message"]
        _, state, _ = await broken.call("GET", "/admin/state", Authorization=f"Bearer {broken.admin}")
        assert state["state"] == "crashed"
        assert "cut short" in state["error"]["message"]


# Retries


async def test_with_an_idempotency_key_the_work_goes_on_and_its_result_is_kept(slow: Service) -> None:
    finished = slow.services.metrics.counts["finished"]
    left = asyncio.create_task(slow.call("POST", CHAT, ask(max_tokens=4), Idempotency_Key="k1"))
    await until(lambda: active(slow))
    left.cancel()
    await until(lambda: slow.services.metrics.counts["finished"] == finished + 1)
    _, first, _ = await slow.call("POST", CHAT, ask(max_tokens=4), Idempotency_Key="k1")
    _, again, _ = await slow.call("POST", CHAT, ask(max_tokens=4), Idempotency_Key="k1")
    assert first["choices"][0]["message"]["content"] == "abca"
    assert first["id"] == again["id"]
    assert slow.services.metrics.counts["finished"] == finished + 1
    for headers in (
        {"Idempotency_Key": "k2"},
        {},
        {"Idempotency_Key": "k1", "Authorization": f"Bearer {slow.admin}"},
    ):
        assert (await slow.call("POST", CHAT, ask(max_tokens=4), **headers))[1]["id"] != first["id"]
    assert (await slow.call("POST", CHAT, ask(max_tokens=3), Idempotency_Key="k1"))[1]["id"] != first["id"]


async def test_a_retry_attaches_to_its_running_twin_and_to_nothing_else(slow: Service) -> None:
    body = ask(max_tokens=6)
    first = asyncio.create_task(slow.call("POST", CHAT, body))
    await until(lambda: active(slow))
    twin = asyncio.create_task(slow.call("POST", CHAT, body, x_stainless_retry_count="1"))
    stranger = asyncio.create_task(
        slow.call("POST", CHAT, body, x_stainless_retry_count="1", Authorization=f"Bearer {slow.admin}")
    )
    not_a_retry = asyncio.create_task(slow.call("POST", CHAT, body, x_stainless_retry_count="0"))
    answers = await asyncio.gather(first, twin, stranger, not_a_retry)
    ids = [answer[1]["id"] for answer in answers]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3
    assert (await slow.call("POST", CHAT, body, x_stainless_retry_count="1"))[1]["id"] not in ids


async def test_an_attached_viewer_keeps_the_work_going_when_the_first_leaves(slow: Service) -> None:
    async with client(slow, max_tokens=8):
        await until(lambda: active(slow))
        twin = asyncio.create_task(slow.call("POST", CHAT, ask(max_tokens=8), x_stainless_retry_count="1"))
        await until(lambda: len(slow.services.generations.running()[0]._viewers) == 2)
    status, body, _ = await twin
    assert (status, body["choices"][0]["message"]["content"]) == (200, "abcabcab")
