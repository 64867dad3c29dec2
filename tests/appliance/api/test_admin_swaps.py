"""Plans and swaps over HTTP, what probes and metrics say meanwhile. Not here: the swap itself (test_swaps.py)."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from appliance.api.admin import MOST_BYTES
from tests.appliance.api.service import Service, service
from tests.appliance.api.test_admin_state import check_keys, state

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = {"start_timeout": 20.0, "warm_timeout": 20.0, "check_timeout": 20.0}
PROFILES: dict[str, dict[str, Any]] = {
    "quick": {"ctx_size": 256, "alias": "quick", "warmup": LIMITS},
    "long": {"ctx_size": 1024, "alias": "long", "warmup": LIMITS},
    "greedy": {"ctx_size": 256, "alias": "quick", "warmup": LIMITS, "sampling": {"temp": 0.0}},
    "fallback": {"ctx_size": 512, "alias": "spare", "warmup": LIMITS},
    "gone": {"model": "nowhere.gguf"},
}
SWAP = {"id", "from", "from_rev", "to", "to_rev", "note", "by", "state", "stage", "n", "of", "is_aborting", "started",
        "ended", "elapsed_s", "gap_s", "stages", "rescue", "reason", "held", "text"}  # fmt: skip
PLAN = {"name", "rev", "verdict", "fits", "reason", "weights_bytes", "weights", "kv_bytes", "kv_bytes_per_token",
        "engine_bytes", "total_bytes", "budget_bytes", "budget_reason", "spare_bytes", "cached", "n_ctx", "n_ctx_train",
        "n_layers", "n_kv_heads", "head_dim", "type_k", "type_v", "parallel", "threads", "load_mode", "model", "size",
        "stages", "gap_s", "restart", "changes", "requests", "rollback", "side_effects", "warnings", "errors", "checks",
        "rows"}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def once(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Serves `quick`; the new engine of `long` takes half a second to load, so that one can look meanwhile."""
    scripts: dict[str, dict[str, Any]] = {"long": {"load_s": 0.5}}
    folder = tmp_path_factory.mktemp("box")
    async with service(folder, profiles=PROFILES, profile="quick", scripts=scripts) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def box(once: Service) -> Any:
    """The same, serving `quick` again after each test."""
    yield once
    if once.services.swapper.in_force.name != "quick":
        _, _, headers = await ask(once, "POST", "/admin/swap", {"to": "quick"})
        assert (await ended(once, headers["Location"]))["state"] in ("ready", "applied")


async def ask(box: Service, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
    return await box.call(method, path, body, Authorization=f"Bearer {box.admin}", **headers)


async def until(condition: Callable[[], Awaitable[Any]], within_s: float = 20.0) -> Any:
    end = time.monotonic() + within_s
    while not (found := await condition()):
        assert time.monotonic() < end, "it never came to pass"
        await asyncio.sleep(0.01)
    return found


async def ended(box: Service, path: str) -> dict[str, Any]:
    """The swap's document once it is over."""

    async def is_over() -> Any:
        status, body, _ = await ask(box, "GET", path)
        assert status == 200, body
        return body if body["ended"] else None

    found: dict[str, Any] = await until(is_over)
    return found


async def page(box: Service) -> dict[str, float]:
    async with box.client.get(box.base + "/metrics", headers={"Authorization": f"Bearer {box.user}"}) as answer:
        lines = (await answer.text()).splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


async def test_a_swap_is_ordered_followed_and_told(box: Service) -> None:
    before = await page(box)
    body = {"to": "long", "note": "night work"}
    status, swap, headers = await ask(box, "POST", "/admin/swap", body, X_Colibri_User="ann")
    assert status == 202, swap
    assert SWAP | {"log", "engine_lines"} <= set(swap)
    assert headers["Location"] == f"/admin/swap/{swap['id']}"
    assert (swap["from"], swap["to"], swap["by"], swap["note"], swap["state"]) == (
        "quick", "long", "ann", "night work", "running",
    )  # fmt: skip

    async def is_swapping() -> bool:
        return bool((await state(box))[0]["state"] == "swapping")

    await until(is_swapping)
    document, size = await state(box)
    check_keys(document)
    assert size < MOST_BYTES
    assert set(document["swap"]) >= SWAP
    assert not {"log", "engine_lines"} & set(document["swap"])
    for path in ("/health", "/readyz"):
        status, answer, told = await box.call("GET", path, Authorization="")
        assert (status, answer["error"]["code"]) == (503, "model_loading")
        assert int(told["Retry-After"]) >= 1
    assert (await box.call("GET", "/livez", Authorization=""))[0] == 200
    assert (await box.call("GET", "/running"))[1] == {"running": [{"model": "quick", "state": "starting"}]}
    held = asyncio.create_task(box.chat())
    assert (await page(box))['colibri_profile_active{profile="quick"}'] == 0

    done = await ended(box, headers["Location"])
    assert done["state"] == "ready", done["text"]
    assert [stage["state"] for stage in done["stages"]] == ["ok"] * 6
    assert (await held)[1]["model"] == "long"
    document, _ = await state(box)
    check_keys(document)
    assert (document["profile"]["name"], document["profile"]["is_fallback"], document["swap"]) == ("long", False, None)
    assert document["profile"]["since"] >= done["started"]
    last = document["last_swap"]
    assert set(last) == {"id", "from", "to", "state", "ended", "took_s", "text"}
    assert (last["id"], last["state"]) == (done["id"], "ready")
    assert any(event["kind"] == "swap" and "long" in event["text"] for event in document["events"])
    assert (await box.call("GET", "/health", Authorization=""))[0] == 200
    assert (await box.call("GET", "/running"))[1] == {"running": [{"model": "long", "state": "ready"}]}
    found = await page(box)
    assert found['colibri_profile_active{profile="long"}'] == 1
    for name in (
        'colibri_profile_switches_total{state="ready"}',
        'colibri_profile_switch_seconds_count{result="ready"}',
    ):
        assert found[name] == before.get(name, 0) + 1
    assert found["colibri_requests_held"] == 0
    assert 'colibri_generation_tokens_total{model_name="long"}' in found
    assert (await ask(box, "GET", "/admin/swaps"))[1]["swaps"][0]["id"] == done["id"]


async def test_the_same_order_twice_is_one_swap_and_another_one_must_wait(box: Service) -> None:
    order = {"Idempotency_Key": "the same order"}
    _, first, _ = await ask(box, "POST", "/admin/swap", {"to": "long"}, **order)
    status, second, _ = await ask(box, "POST", "/admin/swap", {"to": "long"}, **order)
    assert (status, second["id"]) == (202, first["id"])
    status, body, _ = await ask(box, "POST", "/admin/swap", {"to": "fallback"})
    assert (status, body["error"]["code"], body["error"]["swap_id"]) == (
        409, "profile_switch_in_progress", first["id"],
    )  # fmt: skip
    await ended(box, f"/admin/swap/{first['id']}")
    status, third, _ = await ask(box, "POST", "/admin/swap", {"to": "long"}, **order)
    assert (status, third["id"], third["state"]) == (200, first["id"], "ready")


async def test_an_abort_brings_the_old_profile_back_and_is_too_late_afterwards(box: Service) -> None:
    _, _, headers = await ask(box, "POST", "/admin/swap", {"to": "long"})
    path = headers["Location"]
    status, body, _ = await ask(box, "POST", path + "/abort", X_Colibri_User="bob")
    assert (status, body["is_aborting"]) == (202, True)
    done = await ended(box, path)
    assert done["state"] in ("aborted", "rolled_back")
    assert done["reason"]["code"] == "aborted"
    assert any("bob" in line["text"] for line in done["log"])
    assert (await state(box))[0]["profile"]["name"] == "quick"
    status, body, _ = await ask(box, "POST", path + "/abort")
    assert (status, body["error"]["code"]) == (409, "swap_ended")
    status, body, _ = await ask(box, "POST", "/admin/swap/9999/abort")
    assert (status, body["error"]["code"]) == (404, "swap_not_found")


async def test_what_needs_no_stop_is_done_when_it_is_answered(box: Service) -> None:
    pid = box.services.supervisor.pid
    status, swap, _ = await ask(box, "POST", "/admin/swap", {"to": "greedy"})
    assert (status, swap["state"]) == (200, "applied")
    status, swap, _ = await ask(box, "POST", "/admin/swap", {"to": "greedy"})
    assert (status, swap["state"]) == (200, "unchanged")
    assert box.services.supervisor.pid == pid
    assert (await state(box))[0]["profile"]["name"] == "greedy"


async def test_llama_swaps_word_for_it_does_the_same(box: Service) -> None:
    status, body, _ = await box.call("PUT", "/api/profiles/active", {"name": "greedy"})
    assert (status, body["error"]["code"]) == (403, "insufficient_permissions")
    for body in ({"name": "greedy"}, {"profile": "quick"}):
        status, swap, headers = await ask(box, "PUT", "/api/profiles/active", body)
        assert (status, swap["state"], headers["Location"]) == (200, "applied", f"/admin/swap/{swap['id']}")
    assert (await box.call("GET", "/api/profiles"))[1]["active"] == "quick"


async def test_a_plan_says_what_a_swap_would_do_and_touches_nothing(box: Service) -> None:
    pid, n_swaps = box.services.supervisor.pid, len(box.services.swapper.past())
    status, plan, _ = await ask(box, "POST", "/admin/plan", {"name": "long"})
    assert status == 200
    assert set(plan) == PLAN
    assert (plan["verdict"], plan["fits"], plan["n_ctx"], plan["restart"]) == ("OK", True, 1024, True)
    assert [stage["name"] for stage in plan["stages"]] == ["drain", "stop", "start", "warm", "check"]
    assert {"ctx_size", "alias"} <= {change["key"] for change in plan["changes"]}
    text = "name: long\nctx_size: 512\nalias: quick\n"
    _, other, _ = await ask(box, "POST", "/admin/plan", {"name": "long", "text": text})
    assert (other["n_ctx"], other["kv_bytes"]) == (512, plan["kv_bytes"] // 2)
    _, missing, _ = await ask(box, "POST", "/admin/plan", {"name": "gone"})
    assert (missing["verdict"], missing["fits"], missing["weights_bytes"]) == ("BAD", False, None)
    assert missing["errors"]
    row = next(r for r in (await ask(box, "GET", "/admin/profiles"))[1]["profiles"] if r["name"] == "gone")
    assert (row["state"], row["fit"], row["model"]) == ("valid", "BAD", "nowhere.gguf")
    assert (box.services.supervisor.pid, len(box.services.swapper.past())) == (pid, n_swaps)


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "word"),
    [
        ("/admin/swap", {"to": "lnog"}, 404, "profile_not_found", "did you mean 'long'"),
        ("/admin/swap", {"to": "long", "rev": 9}, 404, "profile_not_found", "no revision 9"),
        ("/admin/swap", {"to": "../quick"}, 400, "usage", "no profile name"),
        ("/admin/swap", {"profile": "long"}, 400, "unsupported_parameter", "no field 'profile'"),
        ("/admin/swap", {}, 400, "missing_required_parameter", "to is missing"),
        ("/admin/swap", {"to": "long", "rev": -1}, 400, "unsupported_value", "at least 0"),
        ("/admin/swap", {"to": "long", "note": 5}, 400, "unsupported_value", "a string expected"),
        ("/admin/swap", {"to": "gone"}, 500, "bad_model_file", "nowhere.gguf"),
        ("/admin/plan", {"name": "lnog"}, 404, "profile_not_found", "did you mean 'long'"),
        ("/admin/plan", {"name": "long", "text": "name: long\nctx_size: x\n"}, 400, "profile_invalid", "ctx_size"),
        ("/admin/plan", {"text": "x"}, 400, "missing_required_parameter", "name is missing"),
    ],
)
async def test_what_cannot_be_done_is_told_in_one_sentence(
    box: Service, path: str, body: Any, status: int, code: str, word: str
) -> None:
    seen, answer, _ = await ask(box, "POST", path, body)
    assert (seen, answer["error"]["code"]) == (status, code), answer
    assert word in answer["error"]["message"]
    assert (await state(box))[0]["state"] == "ready"


async def test_an_active_profile_needs_exactly_one_name(box: Service) -> None:
    for body in ({}, {"name": "long", "profile": "long"}, {"name": None}):
        status, answer, _ = await ask(box, "PUT", "/api/profiles/active", body)
        assert (status, answer["error"]["param"]) == (400, "name"), answer


async def test_a_key_or_a_name_that_is_too_long_harms_nobody(box: Service) -> None:
    status, answer, _ = await ask(box, "POST", "/admin/swap", {"to": "greedy"}, Idempotency_Key="k" * 257)
    assert (status, answer["error"]["param"]) == (400, "Idempotency-Key")
    status, swap, _ = await ask(box, "POST", "/admin/swap", {"to": "greedy"}, X_Colibri_User="é" * 200)
    assert (status, len(swap["by"])) == (200, 64)
    _, swap, _ = await ask(box, "POST", "/admin/swap", {"to": "quick", "note": "a\n\x1b[31mb"})
    assert swap["note"] == "a  [31mb"


async def test_a_crashed_engine_is_engine_down_to_probes(tmp_path: Path) -> None:
    async with service(tmp_path, wait=False, options={"load": "bad"}) as broken:

        async def is_down() -> bool:
            _, body, _ = await broken.call("GET", "/health", Authorization="")
            return bool(body["error"]["code"] == "engine_down")

        await until(is_down)
        assert (await broken.call("GET", "/running"))[1] == {"running": []}
        assert (await broken.call("GET", "/livez"))[0] == 200


async def test_swaps_of_an_earlier_life_are_still_listed(tmp_path: Path) -> None:
    async with service(tmp_path, profiles=PROFILES, profile="quick") as first:
        _, swap, _ = await ask(first, "POST", "/admin/swap", {"to": "greedy"})
    async with service(tmp_path, profiles=PROFILES, profile="quick") as second:
        (found,) = (await ask(second, "GET", "/admin/swaps"))[1]["swaps"]
        assert (found["id"], found["state"]) == (swap["id"], "applied")
        assert (await ask(second, "GET", f"/admin/swap/{swap['id']}"))[1]["to"] == "greedy"
        assert (await state(second))[0]["last_swap"]["id"] == swap["id"]
