"""Events: numbering, resuming, gaps, waiting without polling."""

import asyncio
import threading

import pytest

from appliance import logs
from appliance.events import KEPT, TEXT_CHARS, Event, Events


def numbers(events: list[Event]) -> list[int]:
    return [int(event.id.partition("-")[2]) for event in events]


def filled(n: int) -> Events:
    events = Events(boot="b", clock=lambda: 5.0)
    for i in range(n):
        events.tell("worker", f"number {i + 1}")
    return events


def test_an_event_is_plain_values_with_its_facts_beside() -> None:
    events = filled(0)
    events.tell("swap", "long-doc: warm", "warning", swap="0042", took_s=1.5)
    assert events.last(5)[0].json() == {
        "id": "b-1", "time": 5.0, "kind": "swap", "level": "warning", "text": "long-doc: warm", "swap": "0042",
        "took_s": 1.5,
    }  # fmt: skip


def test_a_reader_goes_on_where_it_stopped() -> None:
    events = filled(10)
    found, gap = events.since("b-7")
    assert (numbers(found), gap) == ([8, 9, 10], False)
    assert events.since(events.newest) == ([], False)
    assert numbers(events.since(None)[0]) == list(range(1, 11))
    assert numbers(events.since("b-0")[0]) == list(range(1, 11))


def test_what_has_left_the_ring_is_a_gap() -> None:
    events = filled(KEPT + 5)
    found, gap = events.since("b-3")
    assert gap
    assert numbers(found) == list(range(6, KEPT + 6))
    found, gap = events.since("b-5")
    assert (len(found), gap) == (KEPT, False), "number 6 is the next and is there"


@pytest.mark.parametrize("name", ["a-1", "b", "b-", "b-x", "-1", "b-11", "b-²", "b--1", "b-" + "9" * 5000, "", "\n"])
def test_an_id_of_another_start_or_of_nobody_is_a_gap(name: str) -> None:
    found, gap = filled(10).since(name)
    assert (len(found), gap) == (10, True)


def test_the_newest_few_come_in_order() -> None:
    assert numbers(filled(9).last(3)) == [7, 8, 9]
    assert numbers(filled(2).last(5)) == [1, 2]
    assert filled(2).last(0) == []


def test_text_is_one_line_without_secrets_and_of_bounded_length() -> None:
    events = filled(0)
    logs.hide("hunter2hunter2")
    events.tell("host", "a\nb\x1b[31mc hunter2hunter2 Bearer abc", path="x" * 1000)
    events.tell("host", "y" * 10_000)
    first, second = events.last(2)
    assert first.text == "a b [31mc (hidden) Bearer (hidden)"
    assert len(first.facts["path"]) == 200
    assert len(second.text) == TEXT_CHARS


def test_own_fields_cannot_be_facts() -> None:
    with pytest.raises(AssertionError, match="time"):
        filled(0).tell("host", "x", time=3.0)


async def test_a_waiter_wakes_with_the_event_and_not_before() -> None:
    events = filled(3)
    assert await events.wait("b-2", 0.0)
    assert not await events.wait("b-3", 0.01)
    waiting = [asyncio.create_task(events.wait(events.newest, 30.0)) for _ in range(3)]
    await asyncio.sleep(0)
    threading.Thread(target=events.tell, args=("worker", "from another thread")).start()
    async with asyncio.timeout(5):
        assert await asyncio.gather(*waiting) == [True] * 3
    assert events._wakers == set()


async def test_the_end_wakes_everybody_with_nothing() -> None:
    events = filled(1)
    waiting = asyncio.create_task(events.wait(events.newest, 30.0))
    await asyncio.sleep(0)
    events.close()
    async with asyncio.timeout(5):
        assert not await waiting
        assert not await events.wait("b-0", 30.0)


async def test_a_cancelled_waiter_is_forgotten() -> None:
    events = filled(1)
    waiting = asyncio.create_task(events.wait(events.newest, 30.0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert events._wakers == set()


def test_threads_lose_no_event() -> None:
    events = filled(0)
    threads = [threading.Thread(target=lambda: [events.tell("host", "x") for _ in range(200)]) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers(events.since("b-0")[0]) == list(range(1, 1001))
