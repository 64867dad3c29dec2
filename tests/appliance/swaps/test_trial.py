"""A worker on trial, and the time between two workers; the processes are real, their engine is scripted."""

import os
import signal
from collections.abc import AsyncIterator

import pytest

from engine.errors import EngineFailed
from tests.appliance.scripted import script
from tests.appliance.workers import Make, supervisors, until


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    async with supervisors() as new:
        yield new


async def test_a_worker_on_trial_is_not_started_again_and_the_owner_is_told_why(make: Make) -> None:
    supervisor, heard = make()
    await supervisor.start(script(load="die"), trial=True)
    await until(lambda: supervisor.state == "crashed")
    assert "illegal instruction" in str(supervisor.error) and supervisor.restarts == 0
    assert heard.lost and not heard.gone
    with pytest.raises(EngineFailed):
        supervisor.accept()


async def test_an_accepted_worker_is_started_again_like_any_other(make: Make) -> None:
    supervisor, heard = make()
    await supervisor.start(script(), trial=True)
    await supervisor.ready()
    supervisor.accept()
    os.kill(supervisor.pid or 0, signal.SIGKILL)
    await until(lambda: heard.ready == 2)
    assert supervisor.restarts == 1


async def test_between_two_workers_requests_get_a_reason_and_the_queue_is_not_closed(make: Make) -> None:
    supervisor, heard = make()
    await supervisor.start()
    await supervisor.ready()
    before = supervisor.pid
    await supervisor.stop(between=EngineFailed("a change of profile"))
    assert [error.message for error in heard.lost] == ["a change of profile"] and not heard.gone
    await supervisor.start(script(n_ctx=77), stop_s=1.0)
    assert (await supervisor.ready())["n_ctx"] == 77 and supervisor.pid != before
