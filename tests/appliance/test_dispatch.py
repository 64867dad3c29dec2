"""Requests from submission to their last event, over a real worker process with a scripted engine."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.dispatch import Dispatcher
from appliance.life import WorkerSpec
from appliance.outbox import WINDOW
from appliance.request import Done, Event, Piece, Prefill, Queued
from appliance.supervisor import BackOff, Supervisor
from appliance.ticket import RequestCancelled, Ticket
from engine.errors import EngineDown, EngineFailed, ModelLoading, QueueFull, QueueTimeout
from tests.appliance.scripted import request, script

GUARD_S = 30
Serve = Callable[..., Awaitable[tuple[Dispatcher, Supervisor]]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    made: list[tuple[Dispatcher, Supervisor]] = []

    async def new(spec: WorkerSpec, *, wait: bool = True, **more: Any) -> tuple[Dispatcher, Supervisor]:
        supervisor = Supervisor(spec, back_off=BackOff(first_s=0.05, longest_s=0.1))
        dispatcher = Dispatcher(supervisor, **more)
        made.append((dispatcher, supervisor))
        await supervisor.start()
        if wait:
            await supervisor.ready()
        return dispatcher, supervisor

    async with asyncio.timeout(GUARD_S):
        yield new
        for dispatcher, supervisor in made:
            await supervisor.stop()
            await dispatcher.close()


async def collect(ticket: Ticket) -> list[Event]:
    return [event async for event in ticket]


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Piece))


async def first(ticket: Ticket, kind: type[Event]) -> Event:
    async for event in ticket:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__}")


async def test_one_request_from_submit_to_done(serve: Serve) -> None:
    dispatcher, _ = await serve(script(text="hello."))
    events = await collect(dispatcher.submit(request()))
    assert text(events) == "hello"
    assert isinstance(events[0], Prefill)
    last = events[-1]
    assert isinstance(last, Done)
    assert last.timings["queue_ms"] >= 0
    assert dispatcher.snapshot()["running"] == []
    assert dispatcher.snapshot()["speeds"]["predicted_per_second"] > 0


async def test_the_second_waits_knows_its_place_and_both_are_whole(serve: Serve) -> None:
    dispatcher, _ = await serve(script(text="abcdefgh.", step_s=0.02))
    a, b, c = (dispatcher.submit(request(name)) for name in "abc")
    assert (a.waits, b.position, c.position) == (False, 1, 2)
    state = dispatcher.snapshot()
    assert [job["id"] for job in state["running"]] == ["a"]
    assert [(job["id"], job["position"]) for job in state["waiting"]] == [("b", 1), ("c", 2)]
    assert state["lanes"]["interactive"] == {"waiting": 2, "limit": 8}
    all_events = await asyncio.gather(*map(collect, (a, b, c)))
    assert [text(events) for events in all_events] == ["abcdefgh"] * 3
    assert isinstance(all_events[2][0], Queued)
    assert not c.waits


async def test_full_is_full_and_says_when(serve: Serve) -> None:
    dispatcher, _ = await serve(script(step_s=30), max_queue=1)
    dispatcher.submit(request("a"))
    dispatcher.submit(request("b"))
    with pytest.raises(QueueFull) as refused:
        dispatcher.submit(request("c"))
    assert refused.value.extra["retry_after_s"] >= 1
    dispatcher.submit(request("d", lane="batch"))


async def test_waiting_too_long_ends_in_a_sentence(serve: Serve) -> None:
    dispatcher, _ = await serve(script(step_s=30), queue_timeout=0.3)
    dispatcher.submit(request("a"))
    with pytest.raises(QueueTimeout):
        await collect(dispatcher.submit(request("b")))


async def test_requests_wait_for_a_model_that_is_being_loaded(serve: Serve) -> None:
    dispatcher, _ = await serve(script(text="hi.", load_s=0.3), wait=False)
    events = await collect(dispatcher.submit(request()))
    assert isinstance(events[0], Queued)
    assert text(events) == "hi"


async def test_without_a_queue_loading_is_a_503(serve: Serve) -> None:
    dispatcher, supervisor = await serve(script(text="hi.", load_s=0.3), wait=False, max_queue=0)
    with pytest.raises(ModelLoading):
        dispatcher.submit(request())
    await supervisor.ready()
    assert text(await collect(dispatcher.submit(request()))) == "hi"


async def test_nobody_waits_for_a_model_that_cannot_be_loaded(serve: Serve) -> None:
    dispatcher, _ = await serve(script(load="bad", load_s=0.1), wait=False)
    with pytest.raises(EngineDown, match="cut short"):
        await collect(dispatcher.submit(request("a")))
    with pytest.raises(EngineDown, match="cut short"):
        dispatcher.submit(request("b"))


@pytest.mark.parametrize("phase", ["queue", "prefill", "decode"])
async def test_leaving_frees_the_engine_and_stops_nobody_else(serve: Serve, phase: str) -> None:
    """Steps take 5 s, so the second answer within the guard proves that the first step was left in its middle."""
    slow = {"prefill": {"chunk_s": 5.0}, "decode": {"step_s": 5.0}}.get(phase, {"step_s": 0.02})
    dispatcher, _ = await serve(script(text="abcdef.", **slow))
    leaver = dispatcher.submit(request("leaver"))
    if phase == "queue":
        running, leaver = leaver, dispatcher.submit(request("second"))
        leaver.cancel()
        assert dispatcher.snapshot()["waiting"] == []
        assert text(await collect(running)) == "abcdef"
    else:
        async for event in leaver:
            if isinstance(event, Prefill) and (phase == "prefill" or event.done == event.total):
                break
        await asyncio.sleep(0.05)
        began = asyncio.get_running_loop().time()
        leaver.cancel()
        while dispatcher.snapshot()["running"]:
            await asyncio.sleep(0.001)
        assert asyncio.get_running_loop().time() - began < 2
    with pytest.raises(RequestCancelled):
        await collect(leaver)


async def test_a_cancelled_one_and_the_next_do_not_mix(serve: Serve) -> None:
    dispatcher, _ = await serve(script(text="abc.", step_s=0.01))
    for n in range(20):
        leaver = dispatcher.submit(request(f"l{n}"))
        stayer = dispatcher.submit(request(f"s{n}"))
        await asyncio.sleep(0.002 * n)
        leaver.cancel()
        assert text(await collect(stayer)) == "abc"


async def test_leaving_the_context_cancels_and_done_does_not(serve: Serve) -> None:
    dispatcher, _ = await serve(script(text="a", step_s=0.01))
    with pytest.raises(ZeroDivisionError):
        async with dispatcher.submit(request("a")) as ticket:
            await first(ticket, Piece)
            raise ZeroDivisionError
    while dispatcher.snapshot()["running"]:
        await asyncio.sleep(0.005)
    async with dispatcher.submit(request("b", max_tokens=2)) as ticket:
        assert text(await collect(ticket)) == "aa"


async def test_a_reader_who_does_not_read_delays_only_itself(serve: Serve) -> None:
    long = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=520))
    dispatcher, _ = await serve(script(text=long + "."))
    lazy = dispatcher.submit(request("lazy"))
    assert text(await collect(dispatcher.submit(request("next")))) == long
    events = await collect(lazy)
    assert text(events) == long
    pieces = [event for event in events if isinstance(event, Piece)]
    assert len(pieces) < WINDOW + 20
    assert max(len(piece.ids) for piece in pieces) > 1


async def test_killed_while_answering_one_sentence_then_the_next_is_served(serve: Serve, tmp_path: Path) -> None:
    dispatcher, supervisor = await serve(script(text="abcdef.", kill_at=4, once=str(tmp_path / "done")))
    a, b = dispatcher.submit(request("a")), dispatcher.submit(request("b"))
    got = ""
    with pytest.raises(EngineFailed, match=r"signal 9.*send the request again"):
        async for event in a:
            got += event.text if isinstance(event, Piece) else ""
    assert got == "ab"
    assert text(await collect(b)) == "abcdef"
    assert supervisor.restarts == 1


async def test_kill_from_outside_in_a_stream(serve: Serve) -> None:
    dispatcher, supervisor = await serve(script(text="abc", step_s=0.01))
    ticket = dispatcher.submit(request("a"))
    await first(ticket, Piece)
    os.kill(supervisor.pid or 0, signal.SIGKILL)
    with pytest.raises(EngineFailed):
        await collect(ticket)
    assert text(await collect(dispatcher.submit(request("b", max_tokens=3)))) == "abc"


async def test_an_unsound_engine_is_replaced(serve: Serve, tmp_path: Path) -> None:
    dispatcher, supervisor = await serve(script(text="ab.", raise_at=2, once=str(tmp_path / "done")))
    with pytest.raises(EngineFailed, match="RuntimeError"):
        await collect(dispatcher.submit(request("a")))
    assert text(await collect(dispatcher.submit(request("b")))) == "ab"
    assert supervisor.restarts == 1


async def test_a_failed_request_leaves_the_engine_alone(serve: Serve, tmp_path: Path) -> None:
    dispatcher, supervisor = await serve(script(text="ab.", fail_at=2, once=str(tmp_path / "done")))
    with pytest.raises(EngineFailed, match="not a number"):
        await collect(dispatcher.submit(request("a")))
    assert text(await collect(dispatcher.submit(request("b")))) == "ab"
    assert supervisor.restarts == 0


async def test_shutting_down_ends_running_and_waiting(serve: Serve) -> None:
    dispatcher, supervisor = await serve(script(step_s=30))
    tickets = [dispatcher.submit(request(name)) for name in "ab"]
    await asyncio.sleep(0.05)
    await supervisor.stop()
    for ticket in tickets:
        with pytest.raises(EngineDown, match="shutting down"):
            await collect(ticket)
    with pytest.raises(EngineDown):
        dispatcher.submit(request("c"))
    await supervisor.start()
    assert dispatcher.submit(request("d")).waits


async def test_an_eta_once_something_was_measured(serve: Serve) -> None:
    dispatcher, _ = await serve(script(text="abcdefghijkl.", step_s=0.01, chunk_s=0.01))
    await collect(dispatcher.submit(request("a", prompt="a" * 20)))
    running = dispatcher.submit(request("b"))
    waiting = dispatcher.submit(request("c"))
    assert waiting.eta_ms is not None
    assert 0 < waiting.eta_ms < 60_000
    await asyncio.gather(collect(running), collect(waiting))
