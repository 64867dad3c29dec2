"""`colibri batch add|list|show|cancel` against a running service. Not here: the routes themselves."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai

from tests.appliance.api.service import Service, service
from tests.appliance.cli.shell import Done, colibri, inside
from tests.appliance.cli.test_batch import file_of, row

SOON_S = 120.0


async def ask(running: Service, *words: str) -> Done:
    """In a process of its own where a refusal is expected, which must be one line; inside is quicker."""
    if "batch_none" in words or "../keys" in words:
        env = {"COLIBRI_URL": running.base, "COLIBRI_ADMIN_KEY": running.admin}
        return await asyncio.to_thread(colibri, "batch", *words, **env)
    key = running.services.settings.data_dir / "keys"
    return await asyncio.to_thread(inside, "batch", *words, "--url", running.base, "--key-file", str(key))


async def until(running: Service, name: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    end = time.monotonic() + SOON_S
    while True:
        found: dict[str, Any] = json.loads((await ask(running, "show", name, "--json")).out)
        if holds(found):
            return found
        assert time.monotonic() < end, found


async def test_a_file_is_added_listed_shown_and_cancelled(tmp_path: Path) -> None:
    source = file_of(tmp_path / 'rows "1" é.jsonl', *(row(f"r{i}", f"say é {i}", max_tokens=2) for i in range(3)))
    async with service(tmp_path) as running:
        done = await ask(running, "add", str(source), "--json")
        assert done.code == 0, done.err
        name = json.loads(done.out)["id"]
        found = await until(running, name, lambda batch: batch["status"] == "completed")
        assert found["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
        api = openai.AsyncOpenAI(base_url=running.base + "/v1", api_key=running.admin)
        assert (await api.files.content(found["input_file_id"])).content == source.read_bytes()

        begin, end = time.localtime(time.time() + 7200), time.localtime(time.time() + 10800)
        window = f"{time.strftime('%H:%M', begin)}-{time.strftime('%H:%M', end)}"
        waiting = await ask(running, "add", str(source), "--window", window)
        assert waiting.code == 0 and waiting.out.startswith("batch_")
        other = waiting.out.split()[0]
        await until(running, other, lambda batch: bool((batch.get("colibri") or {}).get("waits")))
        listed = await ask(running, "list")
        assert listed.out.splitlines()[0].split() == ["ID", "STATUS", "ROWS", "FAILED", "CREATED", "ENDPOINT", "NOW"]
        assert f"waits for its hours, {window}" in listed.out and "3/3" in listed.out
        assert (await ask(running, "cancel", other)).code == 0
        await until(running, other, lambda batch: batch["status"] == "cancelled")
        golden = file_of(tmp_path / "golden.jsonl", {**row("g", "hi"), "expected": "never said"})
        held = await ask(running, "add", str(source), "--golden", str(golden), "--golden-min", "0.5", "--json")
        assert held.code == 0, held.err
        name_held = json.loads(held.out)["id"]
        found = await until(running, name_held, lambda batch: "known" in str((batch.get("colibri") or {}).get("waits")))
        assert found["request_counts"]["completed"] == 0
        assert (await ask(running, "cancel", name_held)).code == 0
        shown = await ask(running, "show", name)
        assert "completed_at" in shown.out and "/v1/chat/completions" in shown.out
        missing = await ask(running, "show", "batch_none")
        assert missing.code == 2 and missing.err.count("\n") == 1
        odd = await ask(running, "show", "../keys")
        assert odd.code == 2 and "is no batch's id" in odd.err
