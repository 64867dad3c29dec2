"""Requests that meet a swap at an odd moment: while it is planned, just when it ends, or come again after it.

Not here: swaps themselves (test_swaps.py), what they meet (test_swap_ends.py).
"""

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

from engine.errors import ColibriError
from tests.appliance.api.service import Service, service
from tests.appliance.api.test_swaps import LIMITS, QUICK, box, ended, parts, profiles, until
from tests.tiny import tiny_llama


class Gate:
    """Holds up rendering between `closed` and `open`."""

    def __init__(self, running: Service) -> None:
        self.entered, self.opened = asyncio.Event(), asyncio.Event()
        self._render = running.services.renderer.render
        running.services.renderer.render = self.render  # type: ignore[method-assign]

    async def render(self, *words: Any, **more: Any) -> str:
        prompt = await self._render(*words, **more)
        self.entered.set()
        await self.opened.wait()
        return prompt


def plan_slowly(running: Service, seconds: float) -> threading.Event:
    """Each plan takes so long from now on, or until the event is set."""
    swapper, _ = parts(running)
    prepare, enough = swapper._prepared, threading.Event()

    def slow(*words: Any) -> Any:
        enough.wait(seconds)
        return prepare(*words)

    swapper._prepared = slow
    return enough


async def waiting(running: Service, n: int) -> None:
    await until(lambda: len(running.services.dispatcher.snapshot()["waiting"]) == n)


async def test_what_nobody_serves_is_refused_while_a_swap_is_only_planned(tmp_path: Path) -> None:
    async with box(tmp_path, model="/nowhere/x.gguf") as running:
        plan_slowly(running, 0.5)
        swap = asyncio.create_task(parts(running)[0].begin("long"))
        await asyncio.sleep(0.1)
        assert (await running.chat(model="nobody"))[0] == 404
        status, body, _ = await running.call("POST", "/v1/completions", {"prompt": "word " * 130})
        assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
        assert not swap.done()
        with contextlib.suppress(ColibriError):
            await swap


async def test_who_comes_while_the_waiting_ones_are_made_anew_is_judged_by_the_new_profile(tmp_path: Path) -> None:
    async with box(tmp_path) as running:
        swapper, _ = parts(running)
        swap = await swapper.begin("long")
        held = asyncio.create_task(running.chat())
        await waiting(running, 1)
        gate = Gate(running)
        await gate.entered.wait()
        assert swap.ended is None
        assert (await running.chat(model="nobody"))[0] == 404
        gate.opened.set()
        assert (await held)[0] == 200


async def test_who_waited_through_a_swap_is_read_as_the_new_models_answers_are(tmp_path: Path) -> None:
    """The first model answers in channels, the second one with thoughts between tags."""
    scripts = {"quick": {"step_s": 0.05, "text": "abc"}, "long": {"text": "<think>so</think>\n\nyes."}}
    all_profiles = profiles(chat_template="chatml")
    all_profiles["quick"]["chat_template"] = "gpt-oss"
    async with service(tmp_path, profiles=all_profiles, profile="quick", scripts=scripts) as running:
        first = asyncio.create_task(running.chat(max_tokens=25))
        await until(lambda: parts(running)[0].answers.n_begun() == 1)
        held = asyncio.create_task(running.chat())
        await waiting(running, 1)
        swap = await parts(running)[0].begin("long")
        assert (await first)[0] == 200
        assert await ended(parts(running)[0], swap) == "ready"
        message = (await held)[1]["choices"][0]["message"]
        assert (message["content"], message.get("reasoning_content")) == ("yes", "so")


async def test_a_request_whose_prompt_is_being_made_when_the_profile_changes_is_made_anew(tmp_path: Path) -> None:
    twin = {**QUICK, "alias": "twin", "warmup": LIMITS}
    async with service(tmp_path, profiles={**profiles(), "twin": twin}, profile="quick") as running:
        swapper, _ = parts(running)
        gate = Gate(running)
        answer = asyncio.create_task(running.chat())
        await gate.entered.wait()
        assert (await swapper.begin("twin")).state == "applied"
        gate.opened.set()
        status, body, _ = await answer
        assert (status, body.get("model")) == (200, "twin"), body


async def test_the_limit_of_a_profile_that_serves_no_more_refuses_nobody(tmp_path: Path) -> None:
    async with box(tmp_path) as running:
        swapper, _ = parts(running)
        gate = Gate(running)
        too_long = [{"role": "user", "content": "word " * 130}]
        answer = asyncio.create_task(running.chat(messages=too_long, max_tokens=2))
        await gate.entered.wait()
        await ended(swapper, await swapper.begin("long"))
        gate.opened.set()
        status, body, _ = await answer
        assert (status, body.get("model")) == (200, "long"), body


async def test_a_defect_met_while_a_request_is_made_anew_ends_this_request_only(tmp_path: Path) -> None:
    async with box(tmp_path) as running:
        swapper, _ = parts(running)
        swap = await swapper.begin("long")
        held = [asyncio.create_task(running.chat(user=name)) for name in "ab"]
        await waiting(running, 2)
        render, calls, private = running.services.renderer.render, iter([True]), f"prompt-{tmp_path.name}"

        async def broken(*words: Any, **more: Any) -> str:
            if next(calls, False):
                raise RuntimeError(private)
            return await render(*words, **more)

        running.services.renderer.render = broken  # type: ignore[method-assign]
        assert await ended(swapper, swap) == "ready"
        assert sorted([(await one)[0] for one in held]) == [200, 500]
        lines = running.services.loglines.read(None, 500, "debug")["lines"]
        assert any("RuntimeError" in line["text"] for line in lines)
        assert not any(private in line["text"] for line in lines)


async def test_token_ids_are_those_of_a_file_and_not_of_a_name(tmp_path: Path) -> None:
    other = tiny_llama(tmp_path / "other.gguf", seed=1)
    given = profiles(alias="quick", model=str(other))
    async with service(tmp_path, profiles=given, profile="quick") as running:
        swapper, _ = parts(running)
        for name, status in (("fallback", 200), ("long", 404)):
            swap = await swapper.begin(name)
            body = {"prompt": [5, 6, 7], "max_tokens": 1}
            held = asyncio.create_task(running.call("POST", "/v1/completions", body))
            assert await ended(swapper, swap) == "ready"
            assert (await held)[0] == status, name


async def test_a_kept_answer_is_told_again_after_a_swap_as_its_own_model_gave_it(tmp_path: Path) -> None:
    other = tiny_llama(tmp_path / "other.gguf", n_vocab=300)
    async with service(tmp_path, profiles=profiles(model=str(other)), profile="quick") as running:
        swapper, _ = parts(running)

        async def ask() -> tuple[int, Any]:
            body = {"prompt": [310, 311], "max_tokens": 2, "echo": True}
            status, answer, _ = await running.call("POST", "/v1/completions", body, Idempotency_Key="k")
            return status, answer

        first = await ask()
        assert first[0] == 200, first
        assert await ended(swapper, await swapper.begin("long")) == "ready"
        assert await ask() == first
