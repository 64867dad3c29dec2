"""Answers say what went wrong with them: a loop and hints, over HTTP. Not here: when a loop is one."""

from pathlib import Path
from typing import Any

from tests.appliance.api.service import service

LOOPS: dict[str, Any] = {"text": "now " + "abc" * 400 + "."}


async def test_a_loop_is_told_plainly_and_in_a_stream(tmp_path: Path) -> None:
    async with service(tmp_path, options=LOOPS) as it:
        status, body, _ = await it.chat(temperature=0)
        assert (status, body["choices"][0]["finish_reason"]) == (200, "length")
        assert body["colibri"]["loop"]["period_tokens"] == 3 and body["colibri"]["loop"]["repeats"] > 80
        assert "repeat_penalty to 1.1" in body["colibri"]["hints"][0]
        _, good, _ = await it.chat(temperature=0, max_tokens=20)
        assert not {"loop", "hints"} & good["colibri"].keys()
        last = next(e for e in reversed(await it.events(temperature=0)) if isinstance(e, dict))
        assert last["choices"][0]["finish_reason"] == "length" and last["colibri"]["loop"] == body["colibri"]["loop"]


async def test_what_went_wrong_by_itself_is_counted(tmp_path: Path) -> None:
    async with service(tmp_path, options=LOOPS) as it:
        await it.chat()
        status, body, _ = await it.chat(response_format={"type": "json_object"}, max_tokens=3)
        assert (status, body["choices"][0]["finish_reason"]) == (200, "length")
        lines = it.services.metrics.page().decode().splitlines()
        counted = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}
        label = '{model_name="tiny/model:q4"}'
        assert counted[f"colibri_loops_total{label}"] == counted[f"colibri_schema_failures_total{label}"] == 1
