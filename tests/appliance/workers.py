"""Supervisors for a test, and one who hears what they tell. Not here: any test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from appliance.life import WorkerSpec
from appliance.supervisor import BackOff, Supervisor
from appliance.wire import Frame
from engine.errors import ColibriError
from tests.appliance.scripted import script

GUARD_S = 30
FAST = BackOff(first_s=0.05, longest_s=0.1)


class Heard:
    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.lost: list[ColibriError] = []
        self.gone: list[ColibriError] = []
        self.ready = self.coming = 0

    def worker_coming(self) -> None:
        self.coming += 1

    def worker_ready(self, info: dict[str, Any]) -> None:
        self.ready += 1

    def worker_frame(self, frame: Frame) -> None:
        self.frames.append(frame)

    def worker_lost(self, error: ColibriError) -> None:
        self.lost.append(error)

    def worker_gone(self, error: ColibriError) -> None:
        self.gone.append(error)


Make = Callable[..., tuple[Supervisor, Heard]]


@contextlib.asynccontextmanager
async def supervisors() -> AsyncIterator[Make]:
    """A maker of supervisors, all of which are stopped in the end."""
    made: list[Supervisor] = []

    def new(spec: WorkerSpec | None = None, **more: Any) -> tuple[Supervisor, Heard]:
        supervisor = Supervisor(spec or script(), **{"back_off": FAST, **more})
        heard = Heard()
        supervisor.listen(heard)
        made.append(supervisor)
        return supervisor, heard

    async with asyncio.timeout(GUARD_S):
        yield new
        for supervisor in made:
            await supervisor.stop()


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(GUARD_S):
        while not true():
            await asyncio.sleep(0.005)
