"""The scripted service against the real one: the same documents, key by key and type by type."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from tests.appliance.api.service import service
from tests.tui.fake import STATE, Fake
from tests.tui.shelf import Shelf
from tests.tui.swaps import Swaps
from tui.client import Client, ClientError

# Objects whose keys are names of this model or machine, not of the contract.
OPEN = {"lanes", "weights", "fields"}
# Objects that may say more than the contract asks for: a viewer passes over it.
MORE = {"worker", "model", "events[]", "*", "swap"}
# Values of any type, by the setting they belong to.
ANY = {"default", "value"}
PROFILES = {"quick": {"ctx_size": 256, "alias": "quick"}, "long": {"ctx_size": 384, "alias": "long"},
            "fallback": {"ctx_size": 128, "alias": "spare"}}  # fmt: skip


def kind(value: Any) -> str:
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """What one of two documents has and the other has not; null goes with everything."""
    if ours is None or theirs is None:
        return []
    if kind(ours) != kind(theirs) and path.rsplit(".", 1)[-1] not in ANY:
        return [f"{path}: {kind(ours)} here, {kind(theirs)} there"]
    if isinstance(ours, list):
        return differences(ours[0], theirs[0], f"{path}[]") if ours and theirs else []
    if not isinstance(ours, dict):
        return []
    if path.rsplit(".", 1)[-1] in OPEN:
        return [d for a, b in zip(ours.values(), theirs.values(), strict=False) for d in differences(a, b, f"{path}.*")]
    found = [f"{path}.{key}: only here" for key in sorted(set(ours) - set(theirs))]
    if path.rsplit(".", 1)[-1] not in MORE:
        found += [f"{path}.{key}: only in the real one" for key in sorted(set(theirs) - set(ours))]
    for key in set(ours) & set(theirs):
        found += differences(ours[key], theirs[key], f"{path}.{key}")
    return found


async def ended(client: Client, id: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while (swap := await client.get(f"/admin/swap/{id}"))["ended"] is None:
            await asyncio.sleep(0.05)
    return swap


async def test_every_document_of_the_script_has_the_keys_of_the_real_one(tmp_path: Path) -> None:
    fake = Fake()
    await fake.start()
    shelf, swaps = Shelf(fake), Swaps()
    swaps.begin({"to": "long"}, {})
    for _ in range(40):
        swaps.step()
    script = Client(fake.url)
    slow = {"quick": {"text": "a" * 99, "step_s": 0.05}}
    async with service(tmp_path, profiles=PROFILES, profile="quick", scripts=slow) as real:
        client = Client(real.base, real.admin, "ops")
        asked = [asyncio.create_task(real.chat(max_tokens=60)) for _ in range(2)]
        async with asyncio.timeout(10):
            while not (state := await client.state())["waiting"] or not state["running"]:
                await asyncio.sleep(0.02)
        found = {"state": differences(STATE, state)}
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        body = {"name": "x", "text": "name: x\nctx_sise: 7\n"}
        for what, ours, theirs in (
            ("list", await script.get("/admin/profiles"), await client.get("/admin/profiles")),
            ("one", await script.get("/admin/profiles/long-doc"), await client.get("/admin/profiles/long")),
            ("check", await script.post("/admin/profiles/validate", body),
             await client.post("/admin/profiles/validate", body)),
            ("plan", await script.post("/admin/plan", {"name": "long-doc"}),
             await client.post("/admin/plan", {"name": "long"})),
        ):  # fmt: skip
            found[what] = differences(ours, theirs)
        swap = await client.post("/admin/swap", {"to": "long", "rev": None, "note": "x"}, {"Idempotency-Key": "1"})
        done = await ended(client, swap["id"])
        found["swap"] = differences({k: v for k, v in swaps.done[0].items() if k != "key"}, done, "swap")
        found["after"] = differences(STATE, await client.state())
        assert found == {what: [] for what in found}
        for path, status in (("/admin/profiles/nobody", 404), ("/admin/swap/9999", 404)):
            with contextlib.suppress(ClientError):
                await client.get(path)
                raise AssertionError(f"{path} should have been refused with {status}")
        await client.close()
    await script.close()
    await fake.stop()
    assert shelf.active


async def test_the_events_of_the_real_service_are_followed_and_resumed(tmp_path: Path) -> None:
    async with service(tmp_path) as real:
        client = Client(real.base, real.admin)
        seen: list[dict[str, Any]] = []

        async def follow(last: str = "") -> None:
            async for event in client.events(last):
                seen.append(event)  # noqa: PERF401 - the stream never ends by itself

        async def until_seen(text: str) -> None:
            async with asyncio.timeout(5):
                while not any(event.get("text") == text for event in seen):
                    await asyncio.sleep(0.01)

        task = asyncio.create_task(follow())
        real.services.events.tell("host", "first")
        await until_seen("first")
        task.cancel()
        last = seen[-1]["id"]
        real.services.events.tell("host", "missed meanwhile")
        seen.clear()
        task = asyncio.create_task(follow(last))
        await until_seen("missed meanwhile")
        assert {"id", "time", "kind", "level", "text"} <= set(seen[0]) and seen[0]["text"] == "missed meanwhile"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()
