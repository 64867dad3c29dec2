"""What happens around a batch while it works: another profile, an engine that dies, people with questions."""

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest_asyncio

from appliance.life import WorkerSpec
from tests.appliance.api.service import Service, service
from tests.appliance.api.test_batches import CLIENTS, begin, client, ended, lines, records, until
from tests.appliance.api.test_swaps import profiles
from tests.appliance.batches.test_rows import row
from tests.tiny import tiny_llama


@pytest_asyncio.fixture(autouse=True)
async def closed() -> Any:
    yield
    for api in CLIENTS:
        await api.close()
    CLIENTS.clear()


def rows(n: int, model: str) -> list[dict[str, Any]]:
    return [row(f"r{i}", f"say {i}", model=model, max_tokens=4) for i in range(n)]


async def swap(running: Service, to: str) -> None:
    status, found, _ = await running.call("POST", "/admin/swap", {"to": to}, Authorization=f"Bearer {running.admin}")
    assert status in (200, 202), found
    async with asyncio.timeout(60):
        while running.services.swapper.in_force.name != to or running.services.swapper.current is not None:
            await asyncio.sleep(0.02)


async def some(api: openai.AsyncOpenAI, name: str, n: int) -> None:
    await until(api, name, lambda b: b.request_counts is not None and b.request_counts.completed >= n)


async def test_a_batch_waits_while_another_model_serves_and_goes_on_with_its_own(tmp_path: Path) -> None:
    scripts = {"quick": {"step_s": 0.02}}
    async with service(tmp_path, profiles=profiles(), profile="quick", scripts=scripts) as running:
        api = client(running)
        batch = await begin(api, lines(*rows(40, "quick")))
        await some(api, batch.id, 3)
        await swap(running, "long")
        found = await until(api, batch.id, lambda b: "waits" in json.dumps(b.model_extra))
        assert found.model_extra is not None
        assert found.model_extra["colibri"]["waits"] == "for the model quick, which it began with"
        other = await begin(api, lines(*rows(2, "long")))
        assert (await until(api, other.id, ended)).status == "completed"
        await swap(running, "quick")
        batch = await until(api, batch.id, ended)
        assert batch.status == "completed" and batch.request_counts is not None
        assert (batch.request_counts.completed, batch.request_counts.failed) == (40, 0)
        assert {one["response"]["body"]["model"] for one in await records(api, batch.output_file_id)} == {"quick"}


async def test_rows_that_an_engine_took_with_it_are_asked_again(tmp_path: Path) -> None:
    options = {"kill_at": 30, "once": str(tmp_path / "died"), "n_parallel": 3, "step_s": 0.005}
    async with service(tmp_path, options=options) as running:
        api = client(running)
        batch = await until(api, (await begin(api, lines(*rows(20, "tiny/model:q4")))).id, ended)
        assert (tmp_path / "died").exists() and running.services.supervisor.restarts == 1
        assert batch.request_counts is not None and batch.request_counts.model_dump() == {
            "total": 20, "completed": 20, "failed": 0,
        }  # fmt: skip


async def test_people_are_answered_before_the_rows_that_wait(tmp_path: Path) -> None:
    async with service(tmp_path, options={"step_s": 0.02, "n_parallel": 1}) as running:
        api = client(running)
        batch = await begin(api, lines(*rows(60, "tiny/model:q4")))
        await some(api, batch.id, 1)
        before = (await api.batches.retrieve(batch.id)).request_counts
        for _ in range(3):
            await running.chat(max_tokens=4)
        after = (await api.batches.retrieve(batch.id)).request_counts
        assert before is not None and after is not None
        # One that runs may end before each of them, and one slips in between two questions of one person.
        assert after.completed - before.completed <= 3 * 3
        assert after.completed < 60, "there was nobody to be answered before"
        await api.batches.cancel(batch.id)
        await until(api, batch.id, ended)


async def test_closed_sets_are_scored_in_a_batch_as_they_are_alone(tmp_path: Path) -> None:
    model = str(tiny_llama(tmp_path / "real.gguf"))
    worker = WorkerSpec(model, {"n_ctx": 512, "threads": 1, "ubatch_size": 64, "n_parallel": 4})
    bodies = [{"context": f"the bird {i}", "options": [" sings", " sleeps"]} for i in range(6)]
    given = [{"custom_id": f"r{i}", "method": "POST", "url": "/v1/score", "body": b} for i, b in enumerate(bodies)]
    async with service(tmp_path, worker=worker, model=model) as running:
        api = client(running)
        file = await api.files.create(file=("rows.jsonl", lines(*given)), purpose="batch")
        asked = {"input_file_id": file.id, "endpoint": "/v1/score", "completion_window": "24h"}
        status, made, _ = await running.call("POST", "/v1/batches", asked)
        assert status == 200, made
        batch = await until(api, made["id"], ended)
        found = {one["custom_id"]: one["response"]["body"] for one in await records(api, batch.output_file_id)}
        assert len(found) == 6
        for i, body in enumerate(bodies):
            _, alone, _ = await running.call("POST", "/v1/score", body)
            assert alone["results"] == found[f"r{i}"]["results"] and alone["best"] == found[f"r{i}"]["best"]
