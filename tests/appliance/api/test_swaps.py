"""A change of profile on a running service: who serves when, with what, and what becomes of the requests meanwhile.

Real sockets, queue and worker processes around a scripted engine. Not here: the admin routes, the terminal.
"""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.supervisor import Supervisor
from appliance.swaps.refusals import SwapEnded, SwapRunning
from appliance.swaps.swap import Swap
from appliance.swaps.swapper import Swapper
from engine.errors import BadModelFile, ColibriError, DoesNotFit
from tests.appliance.api.service import Service, service

QUICK = {"ctx_size": 256, "alias": "quick"}
LONG = {"ctx_size": 1024, "alias": "long", "cache_type_k": "f16", "queue": {"max_queue": 8, "queue_timeout": 60.0}}
SPARE = {"ctx_size": 512, "alias": "spare"}
LIMITS = {"start_timeout": 20.0, "warm_timeout": 20.0, "check_timeout": 20.0}
ENDED = ("ready", "applied", "unchanged", "aborted", "rolled_back", "fallback", "crashed", "refused")


def profiles(**changes: Any) -> dict[str, dict[str, Any]]:
    """quick, long and fallback, with `changes` for long."""
    warmup = {**LIMITS, **changes.pop("warmup", {})}
    return {
        "quick": {**QUICK, "warmup": LIMITS},
        "long": {**LONG, "warmup": warmup, **changes},
        "fallback": {**SPARE, "warmup": LIMITS},
    }


@contextlib.asynccontextmanager
async def box(folder: Path, scripts: dict[str, dict[str, Any]] | None = None, **changes: Any) -> AsyncIterator[Service]:
    async with service(folder, profiles=profiles(**changes), profile="quick", scripts=scripts or {}) as running:
        yield running


def parts(running: Service) -> tuple[Swapper, Supervisor]:
    supervisor = running.services.supervisor
    assert isinstance(supervisor, Supervisor)
    return running.services.swapper, supervisor


async def until(condition: Callable[[], Any], within_s: float = 20.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it never came to pass"
        await asyncio.sleep(0.01)


async def ended(swapper: Swapper, swap: Swap) -> str:
    await until(lambda: swap.ended is not None)
    return swap.state


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


async def test_a_swap_ends_the_old_process_and_serves_what_the_new_profile_says(tmp_path: Path) -> None:
    async with box(tmp_path, {"quick": {"step_s": 0.02, "text": "abcdefgh" * 4 + "."}}) as running:
        swapper, supervisor = parts(running)
        old = supervisor.pid
        assert old is not None
        too_long = "word " * 130
        status, body, _ = await running.call("POST", "/v1/completions", {"prompt": too_long})
        assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
        stream = asyncio.create_task(running.events(max_tokens=30))
        await until(lambda: swapper.answers.n_begun() == 1)
        swap = await swapper.begin("long", by="ops", note="for the report")
        assert swapper.state()["state"] == "draining"
        held = asyncio.create_task(running.call("POST", "/v1/completions", {"prompt": too_long, "max_tokens": 2}))
        events = await stream
        assert events[-1] == "[DONE]" and events[-2]["choices"][0]["finish_reason"] == "length"
        assert "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1] if e["choices"]) == (
            "abcdefgh" * 4)[:30]  # fmt: skip
        assert {e["model"] for e in events[:-1]} == {"quick"}
        assert await ended(swapper, swap) == "ready", swap.text
        assert supervisor.pid not in (None, old) and not is_alive(old)
        assert supervisor.info["n_ctx"] == 1024 and swapper.in_force.name == "long"
        status, body, _ = await held
        assert (status, body["model"]) == (200, "long"), body
        assert [stage.state for stage in swap.stages] == ["ok"] * 6
        assert swapper.state() == {"state": "ready", "reason": None}


async def test_who_waits_is_answered_by_the_new_profile_or_told_that_it_is_not_served_any_more(tmp_path: Path) -> None:
    async with box(tmp_path, {"quick": {"step_s": 0.05, "text": "abc"}, "long": {"load_s": 0.3}}) as running:
        swapper, _ = parts(running)
        first = asyncio.create_task(running.chat(max_tokens=25))
        await until(lambda: swapper.answers.n_begun() == 1)
        assert (await running.chat(model="long"))[0] == 404, "nobody serves that name yet"
        waiting = [asyncio.create_task(running.chat(**more)) for more in ({}, {"model": "quick"})]
        await until(lambda: len(running.services.dispatcher.snapshot()["waiting"]) == 2)
        swap = await swapper.begin("long")
        waiting.append(asyncio.create_task(running.chat(model="long")))
        assert (await first)[1]["model"] == "quick"
        assert await ended(swapper, swap) == "ready"
        found = [await task for task in waiting]
        assert [status for status, _, _ in found] == [200, 404, 200]
        assert found[0][1]["model"] == "long" and found[2][1]["model"] == "long"
        assert "'long'" in found[1][1]["error"]["message"] and found[1][1]["error"]["code"] == "model_not_found"
        assert swap.held["kept"] == 2 and swap.held["lost"] == 0


FAILURES = [
    ("start", {"load": "die", "compile_s": 0.0}, {}, "engine_failed"),
    ("start", {"compile_s": 30.0}, {"start_timeout": 0.5}, "start_timeout"),
    ("warm", {"load": "bad", "load_s": 0.3}, {}, "bad_model_file"),
    ("warm", {"load": "full", "load_s": 0.3}, {}, "does_not_fit"),
    ("warm", {"load_s": 30.0}, {"warm_timeout": 0.5}, "warm_timeout"),
    ("warm", {"kill_at": 1}, {}, "engine_failed"),
    ("warm", {"fail_at": 2}, {}, "engine_failed"),
    ("check", {"segfault_at": 4}, {}, "engine_failed"),
    ("check", {"hang_at": 5}, {"check_timeout": 0.5}, "check_timeout"),
]


@pytest.mark.parametrize(("stage", "script", "limits", "code"), FAILURES)
async def test_whatever_the_new_profile_fails_with_the_old_one_serves_again(
    tmp_path: Path, stage: str, script: dict[str, Any], limits: dict[str, float], code: str
) -> None:
    async with box(tmp_path, {"long": script}, warmup=limits) as running:
        swapper, supervisor = parts(running)
        swap = await swapper.begin("long")
        held = asyncio.create_task(running.chat())
        assert await ended(swapper, swap) == "rolled_back"
        assert swap.reason is not None
        assert swap.reason.code == code
        if script.get("load") != "die":  # whether a death falls into start or warm is a matter of milliseconds
            assert swap.reason.stage == stage
        assert swap.rescues[0].profile == "quick" and swap.rescues[0].state == "ok"
        assert swapper.in_force.name == "quick" and swapper.state()["state"] == "ready"
        status, body, _ = await held
        assert (status, body["model"]) == (200, "quick")
        assert swap.held["kept"] == 1
        assert supervisor.restarts == 0, "a trial is not repeated"


@pytest.mark.parametrize("stage", ["drain", "start", "warm", "check"])
async def test_an_abort_in_any_stage_brings_the_old_profile_back(tmp_path: Path, stage: str) -> None:
    slow = {"compile_s": 0.4, "load_s": 0.4, "step_s": 0.1}
    async with box(tmp_path, {"quick": {"step_s": 0.03, "text": "abc"}, "long": slow}) as running:
        swapper, supervisor = parts(running)
        before = supervisor.pid
        stream = asyncio.create_task(running.chat(max_tokens=20))
        await until(lambda: swapper.answers.n_begun() == 1)
        swap = await swapper.begin("long")
        await until(lambda: swap.stage == stage)
        await swapper.abort(swap.id, by="ops")
        state = await ended(swapper, swap)
        assert state == ("aborted" if stage == "drain" else "rolled_back")
        assert swap.reason is not None and swap.reason.code == "aborted"
        assert (supervisor.pid == before) == (stage == "drain")
        assert (await stream)[0] == 200
        assert (await running.chat())[1]["model"] == "quick"
        with pytest.raises(SwapEnded):
            await swapper.abort(swap.id)


@pytest.mark.parametrize("stage", ["drain", "start", "warm", "check"])
async def test_kill_9_in_any_stage_leaves_somebody_serving(tmp_path: Path, stage: str) -> None:
    slow = {"compile_s": 0.4, "load_s": 0.4, "step_s": 0.1}
    async with box(tmp_path, {"quick": {"step_s": 0.03, "text": "abc"}, "long": slow}) as running:
        swapper, supervisor = parts(running)
        stream = asyncio.create_task(running.chat(max_tokens=20))
        await until(lambda: swapper.answers.n_begun() == 1)
        swap = await swapper.begin("long")
        await until(lambda: swap.stage == stage and supervisor.pid is not None)
        os.kill(supervisor.pid or 0, signal.SIGKILL)
        held = asyncio.create_task(running.chat())
        state = await ended(swapper, swap)
        assert state == ("ready" if stage == "drain" else "rolled_back"), swap.text
        assert (await stream)[0] == (500 if stage == "drain" else 200)
        status, body, _ = await held
        assert (status, body["model"]) == (200, swapper.in_force.settings.alias)


@pytest.mark.parametrize("what", ["kill", "abort"])
async def test_kill_9_and_abort_while_the_old_engine_is_stopped(tmp_path: Path, what: str) -> None:
    """An engine that is frozen takes all of its time to leave."""
    patient = {**QUICK, "warmup": {**LIMITS, "stop_timeout": 10.0}}
    async with service(tmp_path, profiles={**profiles(), "quick": patient}, profile="quick") as running:
        swapper, supervisor = parts(running)
        old = supervisor.pid
        assert old is not None
        os.kill(old, signal.SIGSTOP)
        swap = await swapper.begin("long")
        held = asyncio.create_task(running.chat())
        await until(lambda: swap.stage == "stop")
        if what == "abort":
            await swapper.abort(swap.id)
        os.kill(old, signal.SIGKILL)  # spares the ten seconds
        assert await ended(swapper, swap) == ("ready" if what == "kill" else "rolled_back"), swap.text
        assert not is_alive(old)
        status, body, _ = await held
        assert (status, body["model"]) == (200, "long" if what == "kill" else "quick")


async def test_when_the_old_profile_cannot_come_back_the_fallback_serves_and_says_so(tmp_path: Path) -> None:
    scripts: dict[str, dict[str, Any]] = {"long": {"load": "bad"}}
    async with box(tmp_path, scripts) as running:
        swapper, _ = parts(running)
        # The worker of now keeps its orders; whoever is prepared anew gets the new script.
        swapper.in_force.worker.options["load"] = "die"  # type: ignore[index]
        swap = await swapper.begin("long")
        assert await ended(swapper, swap) == "fallback"
        assert [(r.profile, r.state) for r in swap.rescues] == [("quick", "failed"), ("fallback", "ok")]
        assert swapper.state()["state"] == "degraded" and "'fallback' serves" in str(swapper.state()["reason"])
        assert (await running.chat())[1]["model"] == "spare"


async def test_when_nobody_can_be_started_the_queue_is_kept_for_the_next_try(tmp_path: Path) -> None:
    scripts: dict[str, dict[str, Any]] = {"long": {"load": "bad"}, "fallback": {"load": "die"}}
    async with box(tmp_path, scripts) as running:
        swapper, supervisor = parts(running)
        swapper.again.first_s = 1000.0
        swapper.in_force.worker.options["load"] = "die"  # type: ignore[index]
        swap = await swapper.begin("long")
        held = asyncio.create_task(running.chat())
        assert await ended(swapper, swap) == "crashed"
        assert swapper.state()["state"] == "crashed" and supervisor.pid is None
        status, body, headers = await running.chat()
        assert status == 503 and "Retry-After" in headers and "no profile could be started" in body["error"]["message"]
        assert not held.done()
        scripts["long"] = {}
        again = await swapper.begin("long")
        assert await ended(swapper, again) == "ready"
        status, body, _ = await held
        assert (status, body["model"]) == (200, "long")


async def test_serving_keys_are_applied_without_a_stop(tmp_path: Path) -> None:
    twin = {**QUICK, "alias": "twin", "warmup": LIMITS, "sampling": {"n_predict": 3}}
    async with service(tmp_path, profiles={**profiles(), "twin": twin}, profile="quick") as running:
        swapper, supervisor = parts(running)
        before = supervisor.pid
        assert (await swapper.begin("twin")).state == "applied"
        assert supervisor.pid == before
        _, body, _ = await running.chat()
        assert body["model"] == "twin" and body["usage"]["completion_tokens"] == 3
        assert (await swapper.begin("twin")).state == "unchanged"


async def test_one_swap_at_a_time_and_one_per_idempotency_key(tmp_path: Path) -> None:
    async with box(tmp_path, {"long": {"load_s": 0.3}}) as running:
        swapper, _ = parts(running)
        swap = await swapper.begin("long", idempotency_key="k1")
        assert await swapper.begin("long", idempotency_key="k1") is swap
        with pytest.raises(SwapRunning) as caught:
            await swapper.begin("fallback")
        assert caught.value.extra["swap_id"] == swap.id
        assert await ended(swapper, swap) == "ready"
        assert await swapper.begin("long", idempotency_key="k1") is swap


@pytest.mark.parametrize(
    ("values", "error", "word"),
    [
        ({"model": "/nowhere/x.gguf"}, BadModelFile, "there is no file"),
        ({"ctx_size": 1 << 29}, DoesNotFit, "are available"),
    ],
)
async def test_what_cannot_be_planned_is_refused_before_anything_is_touched(
    tmp_path: Path, values: dict[str, Any], error: type[ColibriError], word: str
) -> None:
    async with box(tmp_path, **values) as running:
        swapper, supervisor = parts(running)
        before = supervisor.pid
        with pytest.raises(error, match=word) as caught:
            await swapper.begin("long")
        assert supervisor.pid == before and swapper.state()["state"] == "ready"
        document = swapper.find(str(caught.value.extra["swap_id"]))
        assert document["state"] == "refused" and document["reason"]["stage"] == "plan"


async def test_a_truncated_model_is_refused_by_name_and_the_old_one_serves_on(tmp_path: Path) -> None:
    async with box(tmp_path, model=str(tmp_path / "cut.gguf")) as running:
        swapper, _ = parts(running)
        whole = (tmp_path / "tiny.gguf").read_bytes()
        (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) - 1000])
        with pytest.raises(BadModelFile, match=r"cut\.gguf"):
            await swapper.begin("long")
        assert (await running.chat())[1]["model"] == "quick"


async def test_with_the_policy_cancel_a_long_answer_is_ended_with_a_reason(tmp_path: Path) -> None:
    slow = {"text": "abc", "step_s": 0.05}
    drain = {"drain_timeout": 0.2, "drain_policy": "cancel"}
    given = {**profiles(), "quick": {**QUICK, "warmup": LIMITS, "drain": drain}}
    async with service(tmp_path, profiles=given, profile="quick", scripts={"quick": slow}) as running:
        swapper, _ = parts(running)
        answer = asyncio.create_task(running.chat(max_tokens=200))
        await until(lambda: swapper.answers.n_begun() == 1)
        swap = await swapper.begin("long")
        status, body, headers = await answer
        assert status == 503 and "change of profile" in body["error"]["message"] and "Retry-After" in headers
        assert await ended(swapper, swap) == "ready"
        assert swap["drain"].detail == "0 finished, 1 cancelled"


async def test_an_answer_of_several_choices_is_finished_by_the_model_that_began_it(tmp_path: Path) -> None:
    async with box(tmp_path, {"quick": {"step_s": 0.03}}) as running:
        swapper, _ = parts(running)
        answer = asyncio.create_task(running.chat(n=3))
        await until(lambda: swapper.answers.n_begun() == 1)
        swap = await swapper.begin("long")
        status, body, _ = await answer
        assert status == 200 and len(body["choices"]) == 3 and body["model"] == "quick"
        assert await ended(swapper, swap) == "ready"


async def test_an_engine_that_gives_up_by_itself_is_replaced_by_the_fallback(tmp_path: Path) -> None:
    broken = {"quick": {"load": "bad"}}
    async with service(tmp_path, wait=False, profiles=profiles(), profile="quick", scripts=broken) as running:
        swapper, _ = parts(running)
        held = asyncio.create_task(running.chat())
        await until(lambda: swapper.state()["state"] == "degraded")
        status, body, _ = await held
        assert (status, body["model"]) == (200, "spare")
        assert swapper.ended[-1].state == "fallback"


async def test_the_hand_over_text_is_answered_where_nobody_can_answer_in_time(tmp_path: Path) -> None:
    text = "No answer in time; a person will read this."
    busy = {"max_queue": 1, "queue_timeout": 0.3, "handover": text}
    given = {**profiles(), "quick": {**QUICK, "queue": busy}}
    slow = {"quick": {"step_s": 0.1, "text": "abc"}}
    async with service(tmp_path, profiles=given, profile="quick", scripts=slow) as it:
        long = asyncio.create_task(it.chat(max_tokens=40))
        await until(lambda: it.services.swapper.answers.n_begun() == 1)
        late, full = asyncio.create_task(it.chat()), None
        await until(lambda: bool(it.services.dispatcher.snapshot()["waiting"]))
        full = await it.chat()
        for status, body, _ in (full, await late):
            assert status == 200 and body["choices"][0]["message"]["content"] == text
            assert body["choices"][0]["finish_reason"] == "stop" and body["usage"]["completion_tokens"] == 0
        assert full[1]["colibri"]["handoff"]["reason"] == "queue_full"
        assert (await late)[1]["colibri"]["handoff"]["reason"] == "queue_timeout"
        assert "handoff" not in (await long)[1]["colibri"]
        status, stored, _ = await it.call("GET", "/admin/handoffs", Authorization=f"Bearer {it.admin}")
        told = [body["colibri"]["handoff"] for body in ((await late)[1], full[1])]
        assert status == 200 and [{key: one[key] for key in ("id", "reason")} for one in stored["data"]] == told
        assert (await it.call("GET", "/admin/handoffs"))[0] == 403
    kept = [json.loads(line) for line in (tmp_path / "data" / "handoffs.jsonl").read_text().splitlines() if line]
    assert kept == stored["data"][::-1] and "hi" not in str(kept), "what was asked is not stored"
