"""The drain of a change, with answers that begin and end at will. Not here: whole changes (api/test_swaps.py)."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from appliance.swaps.change import Change
from appliance.swaps.swap import Swap
from engine.errors import ColibriError


class Answers:
    """One has begun; the prompt of another is still read, and it begins when the first was ended."""

    def __init__(self) -> None:
        self.begun, self.ended = 1, 0

    def n_begun(self) -> int:
        return self.begun

    async def break_off(self, error: ColibriError) -> int:
        n, self.begun = self.begun, 2 - self.begun - self.ended
        self.ended += n
        return n

    async def renew(self) -> int:
        return 0


async def test_with_the_policy_cancel_an_answer_that_begins_after_the_others_were_ended_is_ended_too() -> None:
    answers = Answers()
    dispatcher: Any = SimpleNamespace(n_active=lambda: answers.begun)
    settings = SimpleNamespace(drain_timeout=0.0, drain_policy="cancel")
    swap, nobody = Swap("0001", "a", 1, "b", 1), cast(Any, None)
    supervisor: Any = SimpleNamespace(state="ready")
    change = Change(swap, supervisor, dispatcher, answers, nobody, nobody, asyncio.Event())
    async with asyncio.timeout(5):
        await change._drain(cast(Any, SimpleNamespace(settings=settings)))
    assert (answers.ended, swap["drain"].detail) == (2, "0 finished, 2 cancelled")
