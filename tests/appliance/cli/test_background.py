"""The engine's thread: results, errors and leaving early. Not here: an engine."""

import threading
import time
from collections.abc import Iterator

import pytest

from appliance.cli.background import Background


def test_results_and_errors_come_back_from_one_and_the_same_thread() -> None:
    background = Background()
    first, second = background.call(threading.get_ident), background.call(threading.get_ident)
    assert first == second != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        background.call(lambda: 1 // 0)
    assert background.call(lambda: 3) == 3


def test_items_arrive_before_the_work_is_over() -> None:
    go_on = threading.Event()

    def work() -> Iterator[int]:
        yield 1
        assert go_on.wait(20)
        yield 2

    items = Background().stream(work)
    assert next(items) == 1
    go_on.set()
    assert list(items) == [2]


def test_leaving_early_cancels_and_closes_the_work() -> None:
    cancelled, closed = threading.Event(), threading.Event()

    def work() -> Iterator[int]:
        try:
            yield 1
            cancelled.wait(20)
            yield 2
            yield 3
        finally:
            closed.set()

    background = Background()
    items = background.stream(work, cancelled.set)
    assert next(items) == 1
    items.close()
    assert cancelled.is_set() and closed.wait(20)
    assert background.call(lambda: "free") == "free"


def test_work_that_does_not_hear_the_cancel_is_left_behind() -> None:
    stop = threading.Event()

    def deaf() -> Iterator[int]:
        yield 1
        stop.wait(60)

    items = Background().stream(deaf, lambda: None)
    next(items)
    start = time.monotonic()
    items.close()
    assert time.monotonic() - start < 20
    stop.set()
