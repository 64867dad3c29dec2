"""/admin/memory, /admin/residency and the metrics of a model that is read from disk: a real engine that streams."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from appliance.life import WorkerSpec
from appliance.recent import NAMES, WINDOW_S
from tests.appliance.api.service import Service, service
from tests.tiny import tiny_llama
from tests.tiny_moe import N_EXPERTS, tiny_qwen3moe

pytestmark = pytest.mark.asyncio(loop_scope="module")

PINNED, RING = 60_000, 64 * 1024
OPTIONS = {"n_ctx": 512, "threads": 1, "ubatch_size": 64, "load_mode": "stream", "spec_type": "none",
           "pinned_bytes": PINNED, "ring_bytes": RING}  # fmt: skip
KEYS = {"model", "load_mode", "budget_bytes", "private_bytes", "plan", "weights", "kv", "processes", "machine",
        "pressure", "major_faults_s", "disk_read_s", "spent", "token", "rates", "warnings"}  # fmt: skip
TENSORS = ["norms", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def streaming(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    folder = tmp_path_factory.mktemp("streaming")
    model = str(tiny_llama(folder / "tiny.gguf", n_layers=3))
    async with service(folder, worker=WorkerSpec(model, OPTIONS), model=model) as running:
        yield running


async def get(running: Service, path: str) -> Any:
    status, found, _ = await running.call("GET", path, Authorization=f"Bearer {running.admin}")
    assert status == 200, found
    return found


async def metrics_of(running: Service) -> dict[str, float]:
    """Each series of the page with its value."""
    headers = {"Authorization": f"Bearer {running.user}"}
    async with running.client.get(running.base + "/metrics", headers=headers) as answer:
        lines = (await answer.text()).splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


async def answered(running: Service) -> dict[str, Any]:
    """Answer some tokens, then wait for the beat that counts them; the answer's timings."""
    before = ((await get(running, "/admin/memory"))["spent"] or {}).get("n_tokens", 0)
    ask = {"prompt": "the bird", "max_tokens": 8, "temperature": 0}
    _, found, _ = await running.call("POST", "/v1/completions", ask)
    n = found["timings"]["predicted_n"]
    async with asyncio.timeout(20):
        while ((await get(running, "/admin/memory"))["spent"] or {}).get("n_tokens", 0) < before + n:
            await asyncio.sleep(0.05)
    assert n > 1
    return dict(found["timings"])


async def test_memory_tells_the_plan_where_the_weights_are_and_what_a_token_cost(streaming: Service) -> None:
    timings = await answered(streaming)
    found = await get(streaming, "/admin/memory")
    assert set(found) == KEYS and found["load_mode"] == "stream"
    weights = found["weights"]
    assert 0 < weights["pinned_bytes"] <= PINNED and weights["streamed_bytes"] > PINNED
    assert 0 < weights["ring_bytes"] <= RING and weights["expert_cache_bytes"] == 0
    plan = {row["name"]: row for row in found["plan"]}
    assert plan["load_mode"]["value"] == "stream" and plan["load_mode"]["provenance"] == "operator"
    assert plan["kv_bytes"]["value"] == found["kv"]["bytes"] > 0
    assert found["budget_bytes"] == plan["budget_bytes"]["value"] > found["private_bytes"] > 0
    assert found["processes"]["worker"]["anon_bytes"] > weights["pinned_bytes"]
    spent, token = found["spent"], found["token"]
    assert spent["read_bytes"] >= spent["n_steps"] * weights["streamed_bytes"]
    assert token["read_bytes"] == spent["read_bytes"] // spent["n_tokens"]
    assert token["reads"] == pytest.approx(spent["n_reads"] / spent["n_tokens"], abs=1e-3) and token["reads"] > 1
    split = sum(token[f"{part}_ms"] for part in ("compute", "disk", "sample"))
    assert split == pytest.approx(spent["step_ns"] / spent["n_tokens"] / 1e6, rel=0.02)
    # The readers run ahead of what an answer uses, so an answer may be charged a ring's worth less or more.
    least = (timings["predicted_n"] - 1) * weights["streamed_bytes"] - 2 * RING
    assert timings["disk_bytes"] >= least > 0 and timings["disk_ms"] >= 0


async def test_rates_are_those_of_the_last_seconds(streaming: Service) -> None:
    await answered(streaming)  # so that there is a beat before the answer that is counted
    await answered(streaming)
    found = await get(streaming, "/admin/memory")
    rates, streamed = found["rates"], found["weights"]["streamed_bytes"]
    assert set(rates) == set(NAMES) and 0 < rates["seconds"] <= WINDOW_S
    assert rates["tok_s"] > 0 and rates["reads_s"] > rates["steps_s"] > 0
    # The readers run ahead of a step, and the beat that is oldest may have counted what they had read by then.
    assert rates["read_bytes_s"] >= rates["steps_s"] * streamed - 2 * RING / rates["seconds"]
    assert 0 < rates["busy_share"] <= 1 and 0 <= rates["disk_share"] <= 1
    assert rates["expert_hit_share"] is None, "a dense model has none"


async def test_the_map_shows_what_is_pinned_and_adds_up(streaming: Service) -> None:
    found = await get(streaming, "/admin/residency")
    weights = (await get(streaming, "/admin/memory"))["weights"]
    assert (found["by"], found["n_layers"], found["rows"]) == ("tensor", 3, [[0, 0], [1, 1], [2, 2]])
    assert sorted(found["columns"]) == sorted([name] for name in TENSORS)
    norms = found["columns"].index(["norms"])
    assert [row[norms] for row in found["cells"]] == [255, 255, 255], "norms are always kept"
    matrices = [cell for row in found["cells"] for j, cell in enumerate(row) if j != norms]
    assert 0 < min(matrices) <= max(matrices) < 150, "a part is pinned, spread evenly over the layers, the rest is read"
    assert {row["name"] for row in found["others"]} == {"token_embd", "output", "output_norm"}
    kept = [found["groups"][kind]["memory_bytes"] for kind in ("attention", "ffn", "output")]
    assert sum(kept) == weights["pinned_bytes"]
    assert found["groups"]["total"]["bytes"] == weights["weights_bytes"]


async def test_the_map_is_binned_to_the_readers_size_and_one_scan_serves_all(streaming: Service) -> None:
    whole = await get(streaming, "/admin/residency")
    found = await get(streaming, "/admin/residency?rows=2&cols=3")
    assert found["rows"] == [[0, 0], [1, 2]] and [len(names) for names in found["columns"]] == [2, 3, 3]
    assert [len(row) for row in found["cells"]] == [3, 3]
    assert found["groups"] == whole["groups"] and found["scan_cost_ms"] == whole["scan_cost_ms"] >= 0
    for query, param in (("rows=0", "rows"), ("cols=513", "cols"), ("by=head", "by"), ("columns=3", "columns")):
        path = f"/admin/residency?{query}"
        status, body, _ = await streaming.call("GET", path, Authorization=f"Bearer {streaming.admin}")
        assert (status, body["error"]["param"]) == (400, param)


async def test_metrics_count_what_was_read_and_where_the_time_went(streaming: Service) -> None:
    await answered(streaming)
    spent = (await get(streaming, "/admin/memory"))["spent"]
    found = await metrics_of(streaming)
    assert found['colibri_disk_read_bytes_total{kind="dense"}'] >= spent["read_bytes"] > 0
    assert found["colibri_disk_read_seconds_total"] > 0
    parts = [found[f'colibri_token_time_seconds_total{{part="{part}"}}'] for part in ("compute", "disk", "sample")]
    assert sum(parts) == pytest.approx(spent["step_ns"] / 1e9, rel=0.01)
    pinned, streamed = (found[f'colibri_weights_bytes{{place="{place}"}}'] for place in ("pinned", "streamed"))
    assert 0 < pinned <= PINNED < streamed
    assert found["colibri_memory_budget_bytes"] > 1 << 20


async def test_the_map_of_a_mixture_shows_each_expert_and_its_heat(tmp_path: Path) -> None:
    model = str(tiny_qwen3moe(tmp_path / "moe.gguf"))
    options = {**OPTIONS, "expert_bytes": 1 << 20}
    async with service(tmp_path, worker=WorkerSpec(model, options), model=model) as running:
        await answered(running)
        async with asyncio.timeout(30):
            found = await get(running, "/admin/residency")
            while not any(255 in row for row in found["heat"]):
                await asyncio.sleep(0.2)
                found = await get(running, "/admin/residency")
        weights = (await get(running, "/admin/memory"))["weights"]
        lines = await metrics_of(running)
    in_use = weights["expert_cache_used_bytes"]
    assert 0 < in_use == weights["expert_cache_bytes"] == lines["colibri_expert_cache_bytes"]
    assert 0 < lines["colibri_expert_cache_cycle_floor_bytes"] < in_use
    assert (found["by"], found["n_columns"]) == ("expert", N_EXPERTS)
    held = [cell for row in found["cells"] for cell in row]
    assert set(held) <= {0, 255} and 255 in held, "an expert is there as a whole or not at all"


async def test_without_a_loaded_model_memory_is_told_and_the_map_is_503(tmp_path: Path) -> None:
    async with service(tmp_path, wait=False, options={"load_s": 30.0}) as loading:
        found = await get(loading, "/admin/memory")
        assert set(found) == KEYS
        assert (found["spent"], found["load_mode"], found["plan"]) == (None, None, [])
        admin = f"Bearer {loading.admin}"
        status, body, headers = await loading.call("GET", "/admin/residency", Authorization=admin)
        assert (status, body["error"]["code"]) == (503, "engine_down") and headers["Retry-After"] == "5"


@pytest.mark.parametrize("path", ["/admin/memory", "/admin/residency"])
async def test_only_the_admin_key_opens_it(streaming: Service, path: str) -> None:
    assert (await streaming.call("GET", path, Authorization=""))[0] == 401
    assert (await streaming.call("GET", path))[0] == 403
