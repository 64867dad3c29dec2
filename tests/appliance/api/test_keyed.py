"""What a key carries into the service: its rate, its lane, what it may use, and what a change of the file does."""

import asyncio
from pathlib import Path

import openai
import pytest

import appliance.key_watch as key_watch
from appliance.key_lines import Key, Role, digest, line_of
from appliance.keys import change
from tests.appliance.api.service import Service, ask, service
from tests.appliance.api.test_leaving import active, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHAT = "/v1/chat/completions"


async def give(running: Service, name: str, line: str = "", role: Role = "user") -> str:
    """Write a key with these options into the running service's file; its secret, once it opens."""
    secret = f"ck-{name}"
    path = running.services.settings.data_dir / "keys"
    await asyncio.to_thread(change, path, f"{line_of(Key(name, role, digest(secret)))} {line}")
    await until(lambda: running.services.keys.find(secret), 30)
    return secret


@pytest.fixture(autouse=True, scope="module")
def quick() -> None:
    key_watch.follow.__defaults__ = (0.05,)


async def test_the_headers_count_down_and_openai_s_client_waits_for_its_turn(shared: Service) -> None:
    secret = await give(shared, "counted", "rate=2")
    auth = {"Authorization": f"Bearer {secret}"}
    for left in ("1", "0"):
        status, _, headers = await shared.call("POST", CHAT, ask(max_tokens=1), **auth)
        assert (status, headers["x-ratelimit-limit-requests"], headers["x-ratelimit-remaining-requests"]) == (
            200, "2", left,
        )  # fmt: skip
    status, body, headers = await shared.call("POST", CHAT, ask(), **auth)
    assert (status, body["error"]["type"], body["error"]["code"]) == (429, "rate_limit_error", "rate_limit_exceeded")
    assert 0 < int(headers["Retry-After"]) <= 60
    assert 0 < int(headers["retry-after-ms"]) <= 60_000
    assert headers["x-ratelimit-remaining-requests"] == "0"
    # Looking costs nothing, and others are not held up.
    assert (await shared.call("GET", "/v1/models", **auth))[0] == 200
    assert (await shared.chat(max_tokens=1))[0] == 200
    async with openai.AsyncOpenAI(base_url=f"{shared.base}/v1", api_key=secret, max_retries=0) as client:
        with pytest.raises(openai.RateLimitError, match="2 requests a minute"):
            await client.chat.completions.create(model="small", messages=[{"role": "user", "content": "hi"}])


async def test_a_key_of_other_models_or_profiles_is_refused_by_name(shared: Service) -> None:
    allowed = await give(shared, "allowed", "models=other,small")
    assert (await shared.call("POST", CHAT, ask(max_tokens=1), Authorization=f"Bearer {allowed}"))[0] == 200
    for name, options in (("model", "models=other"), ("profile", "profiles=night")):
        secret = await give(shared, name, options)
        for path in (CHAT, "/v1/completions", "/v1/embeddings", "/tokenize"):
            status, body, _ = await shared.call("POST", path, {}, Authorization=f"Bearer {secret}")
            assert (status, body["error"]["code"]) == (403, "insufficient_permissions"), path
            assert "tiny/model:q4" in body["error"]["message"]
            assert options.split("=")[1] in body["error"]["message"]


async def test_a_metrics_key_opens_the_metrics_alone(shared: Service) -> None:
    auth = {"Authorization": f"Bearer {await give(shared, 'prometheus', role='metrics')}"}
    async with shared.client.get(f"{shared.base}/metrics", headers=auth) as answer:
        assert answer.status == 200
    for method, path in (("GET", "/v1/models"), ("POST", CHAT), ("GET", "/admin/state"), ("GET", "/no/such/route")):
        assert (await shared.call(method, path, {} if method == "POST" else None, **auth))[0] == 403, path


async def test_a_revoked_key_is_refused_and_a_spoilt_file_changes_nothing(
    shared: Service, caplog: pytest.LogCaptureFixture
) -> None:
    auth = {"Authorization": f"Bearer {await give(shared, 'shortlived')}"}
    assert (await shared.call("GET", "/v1/models", **auth))[0] == 200
    path = shared.services.settings.data_dir / "keys"
    good = path.read_text()
    path.write_text("nonsense ck-shortlived\n")
    await until(lambda: "line 1" in caplog.text, 30)
    assert "ck-shortlived" not in caplog.text
    assert (await shared.call("GET", "/v1/models", **auth))[0] == 200
    path.write_text(good)
    change(path, without="shortlived")
    await until(lambda: shared.services.keys.find("ck-shortlived") is None, 30)
    assert (await shared.call("GET", "/v1/models", **auth))[0] == 401


@pytest.mark.parametrize("no_auth", [False, True])
async def test_a_request_waits_in_the_lane_of_its_key(tmp_path: Path, no_auth: bool) -> None:
    async with service(tmp_path, options={"text": "abc", "step_s": 0.05}, no_auth=no_auth) as slow:
        for name, sent in (("night", f"Bearer {await give(slow, 'night', 'lane=batch')}"), ("user", "")):
            sent = sent or f"Bearer {slow.user}"
            task = asyncio.create_task(slow.call("POST", CHAT, ask(), Authorization=sent))
            await until(lambda: active(slow), 30)
            assert active(slow)[0]["lane"] == ("batch" if name == "night" else "interactive")
            task.cancel()
            await until(lambda: not active(slow), 30)
