"""The dashboard and the alerts in docs/ops name nothing that /metrics does not have, and the page is well-formed."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from appliance.life import WorkerSpec
from tests.appliance.api.service import Service, service
from tests.appliance.api.test_admin_memory import OPTIONS, answered
from tests.appliance.api.test_swaps import profiles
from tests.tiny_moe import tiny_qwen3moe

OPS = Path(__file__).parents[3] / "docs" / "ops"
SERIES = re.compile(r"\b(?:colibri_\w+|llamacpp:\w+)")
LLAMA = {
    f"llamacpp:{name}"
    for name in (
        "prompt_tokens_total", "prompt_seconds_total", "tokens_predicted_total", "tokens_predicted_seconds_total",
        "prompt_tokens_seconds", "predicted_tokens_seconds", "requests_processing", "requests_deferred",
        "n_decode_total", "n_tokens_max",
    )
}  # fmt: skip


def expressions() -> Iterator[tuple[str, str]]:
    """What the dashboard and the rules ask, with where it stands."""
    for panel in json.loads((OPS / "dashboard.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for group in yaml.safe_load((OPS / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"].keys() == {"summary", "action"}, rule
            yield rule["alert"], rule["expr"]


async def page(tmp_path: Path) -> str:
    """/metrics of a real engine that streams a mixture and has answered: every group is there."""
    model = str(tiny_qwen3moe(tmp_path / "moe.gguf"))
    options: dict[str, Any] = {**OPTIONS, "expert_bytes": 1 << 20}
    async with service(tmp_path, worker=WorkerSpec(model, options), model=model) as running:
        await answered(running)
        return await scraped(running)


async def scraped(running: Service) -> str:
    headers = {"Authorization": f"Bearer {running.user}"}
    async with running.client.get(running.base + "/metrics", headers=headers) as answer:
        assert answer.status == 200
        return await answer.text()


async def test_every_series_of_dashboard_and_alerts_is_on_the_page(tmp_path: Path) -> None:
    text = await page(tmp_path)
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(set(names)) == len(names), "a family stands on the page once"
    known = set(names) | {f"{f.name}_total" for f in families if f.type == "counter"}
    known |= {f"{f.name}_{part}" for f in families if f.type == "histogram" for part in ("bucket", "sum", "count")}
    async with service(tmp_path / "other", profiles=profiles(), profile="quick") as running:
        known |= {family.name for family in text_string_to_metric_families(await scraped(running))}
    asked = [(where, name) for where, expr in expressions() for name in SERIES.findall(expr)]
    assert len(asked) > 30
    assert [(where, name) for where, name in asked if name not in known] == []
    assert known >= LLAMA, "dashboards made for llama-server find their names"
    for family in families:
        assert family.documentation and family.type in ("counter", "gauge", "histogram"), family.name
        assert (":" in family.name) == family.name.startswith("llamacpp:"), "colons are for the first group alone"
        assert all(s.value >= 0 for s in family.samples), family.name
    sums = {s.name: s.value for f in families for s in f.samples if not s.labels}
    assert sums["llamacpp:tokens_predicted_total"] >= 2 and sums["llamacpp:n_decode_total"] >= 2


def test_each_expression_has_closed_brackets_and_the_panels_do_not_overlap() -> None:
    for where, expr in expressions():
        depth = 0
        for c in expr:
            depth += (c in "([{") - (c in ")]}")
            assert depth >= 0, where
        assert depth == 0, where
    places = [tuple(p["gridPos"].values()) for p in json.loads((OPS / "dashboard.json").read_text())["panels"]]
    assert len(set(places)) == len(places)
