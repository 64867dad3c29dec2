"""What a swap meets: who ordered it leaves, the server ends, nothing can be started, files change. Not here: the
requests of others (test_held.py), how a swap goes when it meets nothing (test_swaps.py).
"""

import asyncio
import contextlib
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from appliance.api.serve import LAST, first
from appliance.settings import Settings, resolve
from appliance.swaps.refusals import TooLate
from appliance.swaps.trial import Aborted
from tests.appliance.api.service import Service, service
from tests.appliance.api.test_held import Gate, plan_slowly, waiting
from tests.appliance.api.test_swaps import LIMITS, QUICK, box, ended, is_alive, parts, profiles, until
from tests.tiny import tiny_llama

BROKEN_FALLBACK = "name: fallback\nctx_size: many\n"


async def order_and_leave(running: Service, to: str, after_s: float, **headers: str) -> None:
    sent = {"Authorization": f"Bearer {running.admin}", **headers}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=after_s)) as client:
        with pytest.raises(TimeoutError):
            await client.post(f"{running.base}/admin/swap", json={"to": to}, headers=sent)


async def test_who_orders_and_leaves_while_it_is_applied_does_not_stop_it(tmp_path: Path) -> None:
    given = {**profiles(), "twin": {**QUICK, "alias": "twin", "warmup": LIMITS}}
    slow = {name: {"step_s": 0.05, "text": "abc"} for name in ("quick", "twin")}
    async with service(tmp_path, profiles=given, profile="quick", scripts=slow) as running:
        swapper, _ = parts(running)
        answers = [asyncio.create_task(running.chat(max_tokens=30))]
        await until(lambda: swapper.answers.n_begun() == 1)
        answers.append(asyncio.create_task(running.chat(max_tokens=2)))
        await waiting(running, 1)
        gate = Gate(running)
        await order_and_leave(running, "twin", 1.0)
        gate.opened.set()
        await until(lambda: swapper.current is None)
        assert swapper.ended[-1].state == "applied"
        assert [(await one)[1]["model"] for one in answers] == ["quick", "twin"]


async def test_who_orders_and_leaves_before_the_plan_is_made_may_order_again(tmp_path: Path) -> None:
    async with box(tmp_path) as running:
        swapper, _ = parts(running)
        plan_slowly(running, 0.6)
        await order_and_leave(running, "long", 0.3, **{"Idempotency-Key": "k"})
        await until(lambda: swapper.current is None)
        assert "left before it was planned" in swapper.find("0001")["reason"]["message"]
        swap = await swapper.begin("long", idempotency_key="k")
        assert await ended(swapper, swap) == "ready"


async def test_a_plan_can_be_aborted_and_a_rescue_cannot(tmp_path: Path) -> None:
    async with box(tmp_path) as running:
        swapper, supervisor = parts(running)
        before = supervisor.pid
        plan_slowly(running, 1.0)
        order = asyncio.create_task(swapper.begin("long"))
        await until(lambda: swapper.current is not None)
        await swapper.abort("0001", by="ops")
        with pytest.raises(Aborted):
            await order
        document = swapper.find("0001")
        assert (document["state"], document["reason"]["stage"]) == ("aborted", "plan")
        assert supervisor.pid == before and swapper.current is None
        swapper.in_force.worker.options["load"] = "bad"  # type: ignore[index]
        os.kill(supervisor.pid or 0, signal.SIGKILL)
        await until(lambda: swapper.current is not None)
        with pytest.raises(TooLate):
            await swapper.abort("0002")
        await until(lambda: swapper.state()["state"] == "degraded")


async def test_the_end_of_the_server_while_the_old_process_does_not_leave_starts_no_second_one(tmp_path: Path) -> None:
    async with box(tmp_path) as running:
        swapper, supervisor = parts(running)
        old = supervisor.pid
        assert old is not None
        os.kill(old, signal.SIGSTOP)
        swap = await swapper.begin("long")
        await until(lambda: swap.stage == "stop")
        await asyncio.sleep(0.1)
        began = time.monotonic()
        await swapper.close()
        assert time.monotonic() - began < 8, "it waits for no stop_timeout of 15 s"
        assert (swap.state, swap.stage) == ("cut", "stop")
        await supervisor.stop(within_s=0.5)
        assert time.monotonic() - began < 8 and supervisor.pid is None and not is_alive(old)


async def test_the_first_process_too_gets_the_time_to_leave_that_its_profile_gives(tmp_path: Path) -> None:
    given = {**profiles(), "quick": {**QUICK, "warmup": {**LIMITS, "stop_timeout": 0.3}}}
    async with service(tmp_path, profiles=given, profile="quick") as running:
        swapper, supervisor = parts(running)
        os.kill(supervisor.pid or 0, signal.SIGSTOP)
        swap = await swapper.begin("long")
        assert await ended(swapper, swap) == "ready"
        assert 0.3 <= (swap["stop"].took_s or 0) < 3


async def test_when_no_process_can_be_started_the_swap_ends_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> str:
        raise OSError(28, "No space left on device")

    async with box(tmp_path) as running:
        swapper, supervisor = parts(running)
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "mkdtemp", full)
            swap = await swapper.begin("long")
            assert await ended(swapper, swap) == "crashed"
            assert swap.reason is not None and "No space left on device" in swap.reason.message
        assert await ended(swapper, await swapper.begin("quick")) == "ready"
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "mkdtemp", full)
            os.kill(supervisor.pid or 0, signal.SIGKILL)
            await until(lambda: supervisor.restarts >= 2)
        await until(lambda: supervisor.state == "ready")


async def test_clients_that_wait_for_a_slow_disk_hold_up_no_swap(tmp_path: Path) -> None:
    async with box(tmp_path) as running:
        swapper, _ = parts(running)
        answered = threading.Event()
        slow = [asyncio.create_task(asyncio.to_thread(answered.wait, 30)) for _ in range(16)]
        try:
            async with asyncio.timeout(15):
                assert await ended(swapper, await swapper.begin("long")) == "ready"
                assert (await running.call("GET", "/admin/state", Authorization=f"Bearer {running.admin}"))[0] == 200
        finally:
            answered.set()
            await asyncio.gather(*slow)


async def test_a_further_choice_does_not_wait_for_an_engine_that_nobody_starts_again(tmp_path: Path) -> None:
    async with box(tmp_path, {"quick": {"step_s": 0.05, "text": "abc"}}) as running:
        swapper, supervisor = parts(running)
        two = asyncio.create_task(running.chat(n=2, max_tokens=10))
        await until(lambda: swapper.answers.n_begun() == 1)
        between = asyncio.create_task(running.chat(max_tokens=200))
        await until(lambda: swapper.answers.n_begun() == 2)
        await waiting(running, 1)
        swap = await swapper.begin("long")
        swapper.in_force.worker.options["load"] = "bad"  # type: ignore[index]
        os.kill(supervisor.pid or 0, signal.SIGKILL)
        assert await ended(swapper, swap) == "ready", swap.text
        assert [(await one)[0] for one in (two, between)] == [500, 500]


async def test_an_engine_that_gives_up_while_a_swap_is_planned_is_replaced_all_the_same(tmp_path: Path) -> None:
    async with box(tmp_path, model="/nowhere/x.gguf") as running:
        swapper, supervisor = parts(running)
        enough = plan_slowly(running, 20.0)
        order = asyncio.create_task(swapper.begin("long"))
        await until(lambda: swapper.current is not None)
        swapper.in_force.worker.options["load"] = "bad"  # type: ignore[index]
        os.kill(supervisor.pid or 0, signal.SIGKILL)
        await until(lambda: supervisor.state == "crashed")
        assert not order.done()
        held = asyncio.create_task(running.chat())
        enough.set()
        with contextlib.suppress(Exception):
            await order
        status, body, _ = await held
        assert (status, body["model"]) == (200, "spare")
        assert swapper.state()["state"] == "degraded"


async def test_rolled_back_to_who_serves_instead_of_another_it_still_is_that(tmp_path: Path) -> None:
    broken = {"quick": {"load": "bad"}, "long": {"load": "bad"}}
    async with service(tmp_path, wait=False, profiles=profiles(), profile="quick", scripts=broken) as running:
        swapper, _ = parts(running)
        await until(lambda: swapper.state()["state"] == "degraded")
        assert await ended(swapper, await swapper.begin("long")) == "rolled_back"
        assert swapper.state()["state"] == "degraded"


async def test_the_packaged_fallback_serves_when_its_edit_is_no_good(tmp_path: Path) -> None:
    async with box(tmp_path, {"long": {"load": "bad"}}) as running:
        swapper, _ = parts(running)
        (tmp_path / "data/profiles/fallback.yaml").write_text(BROKEN_FALLBACK)
        swapper.in_force.worker.options["load"] = "die"  # type: ignore[index]
        swap = await swapper.begin("long")
        assert await ended(swapper, swap) == "fallback"
        assert [(r.profile, r.rev, r.state) for r in swap.rescues[1:]] == [
            ("fallback", 0, "failed"), ("fallback", 0, "ok"),
        ]  # fmt: skip
        assert "'fallback' as shipped serves" in str(swapper.state()["reason"])


async def test_nobody_is_tried_twice(tmp_path: Path) -> None:
    model = str(tiny_llama(tmp_path / "own.gguf"))
    given = {name: {**values, "model": model} for name, values in profiles().items() if name != "fallback"}
    more: Any = {"scripts": {"long": {"load": "bad"}}, "default_model": str(tmp_path / "nowhere.gguf")}
    async with service(tmp_path, profiles=given, profile="quick", **more) as running:
        swapper, _ = parts(running)
        swapper.in_force.worker.options["load"] = "die"  # type: ignore[index]
        swap = await swapper.begin("long")
        assert await ended(swapper, swap) == "crashed"
        # Whether a death falls into start or warm is a matter of milliseconds.
        assert [r.profile for r in swap.rescues] == ["quick", "fallback"] and swap.rescues[1].stage == "plan"


def test_a_service_that_is_left_alone_comes_back_with_the_packaged_fallback(tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles/fallback.yaml").write_text(BROKEN_FALLBACK)
    (tmp_path / "active.json").write_text('{"name": "gone", "rev": 1}')
    flags = {"data_dir": str(tmp_path), "default_model": str(tiny_llama(tmp_path / "tiny.gguf"))}
    settings: Settings = resolve(flags, {}).settings
    begin = first(settings, lambda values: resolve(flags, {}, values), LAST)
    assert (begin.prepared.name, begin.prepared.rev) == ("fallback", 0)
    assert "'gone' cannot be started" in str(begin.degraded) and "as shipped" in str(begin.degraded)


async def test_a_model_file_that_was_replaced_is_planned_anew_when_the_engine_dies(tmp_path: Path) -> None:
    async with box(tmp_path) as running:
        swapper, supervisor = parts(running)
        # What the real worker does with another file under the same name: it refuses to load it.
        swapper.in_force.worker.options["load"] = "bad"  # type: ignore[index]
        os.replace(tiny_llama(tmp_path / "new.gguf", n_vocab=300), tmp_path / "tiny.gguf")
        os.kill(supervisor.pid or 0, signal.SIGKILL)
        await until(lambda: swapper.ended)
        swap = swapper.ended[-1]
        assert (swap.state, swap.new, swapper.in_force.name) == ("ready", "quick", "quick"), swap.text
        assert swapper.state() == {"state": "ready", "reason": None}
        assert running.services.admission.text.vocab.n_vocab == 300
