"""GET /admin/state: its keys, its size, what it must not hold; the machine behind it is this one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from appliance.api.admin import MOST_BYTES
from tests.appliance.api.service import Service, service

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYS: dict[str, set[str]] = {
    "": {"api", "seq", "time", "version", "uptime_s", "host", "state", "reason", "engine", "progress", "error", "hold",
         "profile", "swap", "last_swap", "model", "worker", "slots", "running", "waiting", "n_waiting", "lanes", "held",
         "speeds", "ttft", "requests", "memory", "cpu", "thp", "swappiness", "batch", "warnings", "events"},
    "model": {"id", "aliases", "architecture", "n_ctx", "n_ctx_train", "size", "load_mode", "type_k", "type_v"},
    "worker": {"pid", "restarts", "n_ctx", "type_k", "type_v", "batch_size", "ubatch_size", "threads", "isa",
               "kv_bytes", "weights_bytes", "load_s"},
    "slots": {"total", "busy"},
    "held": {"n", "oldest_ms", "refused"},
    "speeds": {"prompt_per_second", "predicted_per_second", "typical_n", "now_per_second", "history"},
    "ttft": {"p50_ms", "p95_ms"},
    "requests": {"finished", "failed", "cancelled", "refused"},
    "memory": {"api", "worker", "kv_used_bytes", "machine", "major_faults_s", "disk_read_s"},
    "cpu": {"cores", "load1", "nodes", "temp_c", "throttled", "quota"},
}  # fmt: skip
RUNNING = {"id", "lane", "model", "state", "phase", "n_prompt", "n_prompt_done", "n_generated", "max_tokens",
           "running_ms", "queue_ms", "ttft_ms", "tok_s", "eta_ms"}  # fmt: skip
WAITING = {"id", "lane", "model", "position", "eta_ms", "waited_ms", "n_prompt"}
PROCESS = {"anon_bytes", "rss_bytes", "swap_bytes", "major_faults"}
MACHINE = {"total", "available", "free", "cached", "limit", "limit_used", "swap_total", "swap_used"}


async def state(running: Service) -> tuple[dict[str, Any], int]:
    """The document and its bytes."""
    headers = {"Authorization": f"Bearer {running.admin}"}
    async with running.client.get(running.base + "/admin/state", headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json(), len(await answer.read())


def check_keys(document: dict[str, Any]) -> None:
    for place, keys in KEYS.items():
        found = set(document[place] if place else document)
        assert keys <= found, f"{place}: {keys - found} missing"
    assert set(document) == KEYS[""], "a key that nobody described"
    memory = document["memory"]
    assert (set(memory["api"]), set(memory["worker"]), set(memory["machine"])) == (PROCESS, PROCESS, MACHINE)
    for node in document["cpu"]["nodes"]:
        assert set(node) == {"node", "cpus", "util", "mhz", "governor"}
    assert len(document["speeds"]["history"]) == 60
    assert all(set(row) == RUNNING for row in document["running"])
    assert all(set(row) == WAITING for row in document["waiting"])
    assert all({"id", "time", "kind", "level", "text"} <= set(event) for event in document["events"])


async def test_every_key_is_there_when_all_is_well(shared: Service) -> None:
    await shared.chat(messages=[{"role": "user", "content": "a very private word"}])
    document, size = await state(shared)
    check_keys(document)
    assert size < MOST_BYTES
    assert (document["api"], document["state"], document["engine"], document["reason"]) == (1, "ready", "ready", None)
    assert document["memory"]["worker"]["anon_bytes"] > 0
    assert document["memory"]["machine"]["total"] > document["memory"]["machine"]["available"] > 0
    assert sum(document["speeds"]["history"]) <= document["requests"]["finished"] * 6
    assert "private" not in str(document)
    assert any(event["kind"] == "request" for event in document["events"])
    later, _ = await state(shared)
    assert later["seq"] == document["seq"] + 1


async def test_every_key_is_there_while_the_engine_loads_and_when_it_is_gone(tmp_path: Path) -> None:
    async with service(tmp_path / "a", wait=False, options={"load_s": 30.0}) as loading:
        document, _ = await state(loading)
        check_keys(document)
        assert document["state"] == "loading"
        assert document["worker"]["n_ctx"] is None
    async with service(tmp_path / "b", wait=False, options={"load": "bad"}) as broken:
        async with asyncio.timeout(10):
            while (await state(broken))[0]["state"] != "crashed":
                await asyncio.sleep(0.02)
        document, _ = await state(broken)
        check_keys(document)
        assert document["error"]["code"] == "bad_model_file"
        assert "download is cut short" in document["reason"]
        assert set(document["memory"]["worker"].values()) == {None}


async def test_fifty_requests_leave_it_small_and_counted(tmp_path: Path) -> None:
    options = {"text": "a", "step_s": 0.05}
    async with service(tmp_path, options=options, max_queue=100) as busy:
        asked = [asyncio.create_task(busy.chat(max_tokens=400, seed=i)) for i in range(51)]
        async with asyncio.timeout(20):
            while (document := (await state(busy))[0])["n_waiting"] < 50 or not document["running"][0]["tok_s"]:
                await asyncio.sleep(0.05)
        document, size = await state(busy)
        check_keys(document)
        assert size < MOST_BYTES
        assert (document["slots"], document["n_waiting"]) == ({"total": 1, "busy": 1}, 50)
        assert 15 <= len(document["waiting"]) <= 50
        assert [row["position"] for row in document["waiting"]] == list(range(1, len(document["waiting"]) + 1))
        (row,) = document["running"]
        assert row["phase"] == "decode"
        assert 0 < row["tok_s"] <= 25
        assert document["speeds"]["now_per_second"] == row["tok_s"]
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


@pytest.mark.parametrize("path", ["/admin/state", "/admin/events", "/admin/logs", "/admin/profiles", "/admin/swaps"])
async def test_only_the_admin_key_opens_it(shared: Service, path: str) -> None:
    assert (await shared.call("GET", path, Authorization=""))[0] == 401
    status, body, _ = await shared.call("GET", path)
    assert (status, body["error"]["code"]) == (403, "insufficient_permissions")


async def test_a_query_nobody_reads_is_refused_with_the_nearest(shared: Service) -> None:
    admin = f"Bearer {shared.admin}"
    status, body, _ = await shared.call("GET", "/admin/logs?levle=info", Authorization=admin)
    assert (status, body["error"]["param"]) == (400, "levle")
    assert "did you mean 'level'" in body["error"]["message"]
