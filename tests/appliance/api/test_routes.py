"""The table of routes, what is made of it, and the small routes: probes, models, text, metrics, state."""

from pathlib import Path

import pytest

from appliance.api.app import make_app
from appliance.api.openapi import document, public_path
from appliance.api.routes import ROUTES
from appliance.api.schema import ChatRequest
from tests.appliance.api.service import Service, service

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_description_and_the_router_know_the_same_routes(shared: Service) -> None:
    app = make_app_again(shared)
    routed = {
        (route.method, public_path(str(route.resource.canonical)))
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    _, described, _ = await shared.call("GET", "/openapi.json")
    assert {(m.upper(), path) for path, item in described["paths"].items() for m in item} == routed


def make_app_again(shared: Service):  # type: ignore[no-untyped-def]
    """A second application of the same services; its metrics source is taken back."""
    known = set(shared.services.metrics.registry._collector_to_names)
    app = make_app(shared.services)
    for collector in set(shared.services.metrics.registry._collector_to_names) - known:
        shared.services.metrics.registry.unregister(collector)
    return app


async def test_the_description_names_every_field_and_resolves_its_references() -> None:
    described = document(ROUTES)
    assert set(described["components"]["schemas"]["ChatRequest"]["properties"]) == set(ChatRequest.model_fields)
    text = str(described)
    for part in text.split("'#/components/schemas/")[1:]:
        assert part.partition("'")[0] in described["components"]["schemas"]


async def test_models_are_listed_and_found_by_names_with_slashes_and_colons(shared: Service) -> None:
    _, listed, _ = await shared.call("GET", "/v1/models")
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["tiny/model:q4", "small"]
    for name in ("tiny/model:q4", "tiny%2Fmodel%3Aq4", "small"):
        status, model, _ = await shared.call("GET", f"/v1/models/{name}")
        assert status == 200
        assert (model["object"], model["owned_by"], type(model["created"])) == ("model", "colibri", int)
        assert model["meta"]["state"] == "ready"


async def test_probes_answer_anyone(shared: Service) -> None:
    for path in ("/livez", "/health", "/v1/health", "/readyz"):
        assert (await shared.call("GET", path, Authorization=""))[:2] == (200, {"status": "ok"})
        async with shared.client.head(shared.base + path) as answer:
            assert answer.status == 200


async def test_text_goes_to_ids_and_back(shared: Service) -> None:
    _, found, _ = await shared.call("POST", "/tokenize", {"content": "hello é <|im_end|>", "add_special": False})
    _, back, _ = await shared.call("POST", "/detokenize", {"tokens": found["tokens"]})
    assert back["content"] == "hello é <|im_end|>"
    _, plain, _ = await shared.call("POST", "/tokenize", {"content": "<|im_end|>", "parse_special": False})
    assert len(plain["tokens"]) > 1
    _, pieces, _ = await shared.call("POST", "/tokenize", {"content": "é", "with_pieces": True})
    raw = b"".join(p if isinstance(p, bytes) else bytes(p) if isinstance(p, list) else p.encode()
                   for p in (item["piece"] for item in pieces["tokens"]))  # fmt: skip
    assert raw.decode() == "é"


async def test_apply_template_shows_what_a_chat_request_reads(shared: Service) -> None:
    messages = [{"role": "user", "content": "hi"}]
    _, shown, _ = await shared.call("POST", "/apply-template", {"messages": messages})
    assert shown["prompt"].endswith("<|im_start|>assistant\n")
    _, ids, _ = await shared.call("POST", "/tokenize", {"content": shown["prompt"], "add_special": True})
    _, answer, _ = await shared.chat(messages=messages, max_tokens=1)
    assert answer["usage"]["prompt_tokens"] == len(ids["tokens"])
    _, bare, _ = await shared.call("POST", "/apply-template", {"messages": messages, "add_generation_prompt": False})
    assert shown["prompt"].startswith(bare["prompt"])
    assert bare["prompt"] != shown["prompt"]


async def test_metrics_hold_the_three_groups(shared: Service) -> None:
    await shared.chat()
    async with shared.client.get(
        shared.base + "/metrics", headers={"Authorization": f"Bearer {shared.user}"}
    ) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        page = await answer.text()
    for name in (
        "llamacpp:prompt_tokens_total", "llamacpp:requests_processing", "llamacpp:requests_deferred",
        "colibri_num_requests_running", "colibri_time_to_first_token_seconds_bucket", "colibri_request_success_total",
        "colibri_memory_used_bytes", "colibri_build_info", "colibri_http_requests_total",
    ):  # fmt: skip
        assert f"\n{name}" in page, name
    assert "_created" not in page


async def test_metrics_may_be_off(tmp_path: Path) -> None:
    async with service(tmp_path, metrics=False) as silent:
        status, body, headers = await silent.call("GET", "/metrics")
        assert (status, body["error"]["code"], headers["x-should-retry"]) == (501, "endpoint_disabled", "false")


async def test_the_state_is_small_numbered_and_holds_no_text(shared: Service) -> None:
    await shared.chat(messages=[{"role": "user", "content": "a very private word"}])
    admin = f"Bearer {shared.admin}"
    _, first, _ = await shared.call("GET", "/admin/state", Authorization=admin)
    _, second, _ = await shared.call("GET", "/admin/state", Authorization=admin)
    assert second["seq"] == first["seq"] + 1
    assert first["state"] == "ready"
    assert first["requests"]["finished"] >= 1
    assert first["memory"]["api"]["anon_bytes"] > 0
    assert first["memory"]["worker"]["anon_bytes"] > 0
    assert len(str(first)) < 8192
    assert "private" not in str(first)
