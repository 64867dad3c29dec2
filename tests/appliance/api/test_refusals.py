"""Whatever goes wrong is answered in one shape, as JSON, without a word of ours or of the client's in it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.appliance.api.service import Service, ask, service

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHAT = "/v1/chat/completions"


def checked(body: Any) -> dict[str, Any]:
    error: dict[str, Any] = body["error"]
    assert {"message", "type", "param", "code"} <= set(error)
    assert error["message"]
    assert error["message"].count("\n") == 0
    for word in ("Traceback", "site-packages", "/work", "/usr", "Error:", "<class", "object at 0x"):
        assert word not in error["message"]
    return error


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", CHAT, b"{model: x", 400, "invalid_json"),
        ("POST", CHAT, b"", 400, "invalid_json"),
        ("POST", CHAT, b"[1,2]", 400, "invalid_json"),
        ("POST", CHAT, b"[" * 100_000, 400, "invalid_json"),
        ("POST", CHAT, b'{"messages": [], "messages": []}', 400, "invalid_json"),
        ("POST", CHAT, ask(temperature="hot"), 400, "unsupported_value"),
        ("POST", CHAT, ask(foo=1), 400, "unsupported_parameter"),
        ("POST", CHAT, ask(logit_bias={"999999999": 5}), 400, "unsupported_value"),
        ("POST", "/v1/completions", {"prompt": [0, 99999999]}, 400, "unsupported_value"),
        ("POST", "/v1/completions", {"prompt": ""}, 400, "unsupported_value"),
        ("GET", CHAT, None, 405, "method_not_allowed"),
        ("DELETE", "/livez", None, 405, "method_not_allowed"),
        ("PATCH", "/v1/models", None, 405, "method_not_allowed"),
        ("POST", "/v1/nothing", {}, 404, "route_not_found"),
        ("GET", "/%2e%2e/etc/passwd", None, 404, "route_not_found"),
        ("GET", "/v1/models/no/such", None, 404, "model_not_found"),
        ("POST", "/tokenize", {"content": 5}, 400, "unsupported_value"),
        ("POST", "/detokenize", {"tokens": [1 << 50]}, 400, "unsupported_value"),
        ("POST", "/apply-template", {"messages": []}, 400, "unsupported_value"),
    ],
)
async def test_a_wrong_request_has_its_status_and_code(
    shared: Service, method: str, path: str, body: Any, status: int, code: str
) -> None:
    seen, answer, headers = await shared.call(method, path, body)
    assert (seen, checked(answer)["code"]) == (status, code)
    assert headers["Content-Type"].startswith("application/json")
    assert headers["X-Request-Id"]
    assert (await shared.call("GET", "/health"))[0] == 200


async def test_a_typo_in_the_path_is_told_the_nearest_route(shared: Service) -> None:
    _, body, _ = await shared.call("POST", "/v1/chat/completion", {})
    assert "/v1/chat/completions" in checked(body)["message"]


async def test_the_allowed_methods_are_named(shared: Service) -> None:
    _, _, headers = await shared.call("PUT", "/v1/models")
    assert set(headers["Allow"].split(", ")) == {"GET", "HEAD"}


async def test_a_body_over_the_cap_is_refused_however_its_length_is_told(shared: Service) -> None:
    cap = shared.services.body_cap
    status, body, _ = await shared.call("POST", CHAT, b" " * (cap + 1))
    assert (status, checked(body)["code"]) == (413, "request_too_large")

    async def pieces() -> Any:
        for _ in range(cap // 65536 + 2):
            yield b" " * 65536

    headers = {"Authorization": f"Bearer {shared.user}", "Content-Type": "application/json"}
    async with shared.client.post(shared.base + CHAT, data=pieces(), headers=headers) as answer:
        assert (answer.status, checked(await answer.json())["code"]) == (413, "request_too_large")


async def test_a_compressed_bomb_is_measured_after_it_went_off(shared: Service) -> None:
    import gzip

    bomb = gzip.compress(b" " * (shared.services.body_cap * 4))
    status, body, _ = await shared.call("POST", CHAT, bomb, Content_Encoding="gzip")
    assert (status, checked(body)["code"]) == (413, "request_too_large")
    small = gzip.compress(json.dumps(ask(max_tokens=1)).encode())
    assert (await shared.call("POST", CHAT, small, Content_Encoding="gzip"))[0] == 200
    status, body, _ = await shared.call("POST", CHAT, b"no gzip at all", Content_Encoding="gzip")
    assert (status, checked(body)["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
async def test_what_is_no_http_gets_json_or_a_closed_door(shared: Service, raw: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", shared.port)
    writer.write(raw)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"400" in head.split(b"\r\n")[0]
    assert checked(json.loads(body))["code"] in ("bad_http", "invalid_request")
    assert (await shared.call("GET", "/livez"))[0] == 200


async def test_a_body_that_is_not_what_its_encoding_says_leaves_no_stack_in_the_log(
    shared: Service, caplog: pytest.LogCaptureFixture
) -> None:
    status, answer, _ = await shared.call("POST", CHAT, b"{" + b" " * 500 + b"}", Content_Encoding="gzip")
    assert (status, checked(answer)["code"]) == (400, "invalid_json")
    await asyncio.sleep(0.1)
    assert (await shared.call("GET", "/health"))[0] == 200
    assert not [record for record in caplog.records if record.exc_info or "Traceback" in record.getMessage()]


async def test_a_client_that_expects_100_continue_is_served_and_any_other_expectation_refused(shared: Service) -> None:
    assert (await shared.call("POST", CHAT, ask(max_tokens=1), Expect="100-continue"))[0] == 200
    status, answer, headers = await shared.call("POST", CHAT, ask(), Expect="tea")
    assert (status, checked(answer)["code"]) == (417, "expectation_failed")
    assert headers["Content-Type"].startswith("application/json")


async def test_a_client_s_request_id_comes_back_unless_it_is_odd(shared: Service) -> None:
    _, _, headers = await shared.call("GET", "/livez", X_Request_Id="mine-1.2_3:4")
    assert headers["X-Request-Id"] == "mine-1.2_3:4"
    for odd in ("a b", "x" * 129, "é", "<script>"):
        _, _, headers = await shared.call("GET", "/livez", X_Request_Id=odd)
        assert headers["X-Request-Id"].startswith("req_")


async def test_a_fault_of_ours_is_a_bare_500_with_the_id_to_ask_by(
    shared: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the prompt was: " + "-".join(["classi", "fied"]))

    monkeypatch.setattr(shared.services.admission, "chat", broken)
    status, body, headers = await shared.chat()
    error = checked(body)
    assert (status, error["type"], error["code"]) == (500, "server_error", "internal_error")
    assert headers["X-Request-Id"] in error["message"]
    assert headers["x-should-retry"] == "false"
    assert "RuntimeError" in caplog.text
    assert "classi-fied" not in caplog.text


async def test_a_full_queue_is_429_with_both_retry_headers(tmp_path: Path) -> None:
    async with service(tmp_path, options={"step_s": 0.05, "text": "abc"}, max_queue=1) as busy:
        running = asyncio.create_task(busy.chat(max_tokens=40))
        waiting = asyncio.create_task(busy.chat(max_tokens=1))
        while not busy.services.dispatcher.snapshot()["waiting"]:
            await asyncio.sleep(0.01)
        for fields in ({}, {"stream": True}):
            status, body, headers = await busy.chat(**fields)
            assert (status, checked(body)["code"], body["error"]["type"]) == (429, "queue_full", "rate_limit_error")
            assert int(headers["Retry-After"]) >= 1
            assert int(headers["retry-after-ms"]) >= 1
        assert (await busy.call("GET", "/readyz"))[1]["error"]["code"] == "not_ready"
        assert (await busy.call("GET", "/health"))[0] == 200
        assert [status for status, _, _ in await asyncio.gather(running, waiting)] == [200, 200]


async def test_a_fault_in_the_middle_of_a_stream_is_an_error_event_and_no_end(tmp_path: Path) -> None:
    async with service(tmp_path, options={"fail_at": 4, "once": str(tmp_path / "once")}) as faulty:
        seen = await faulty.events()
        assert checked(seen[-1])["code"] == "engine_failed"
        assert "[DONE]" not in seen
        assert not any(c["choices"][0]["finish_reason"] for c in seen[:-1])
        assert (await faulty.chat())[0] == 200


async def test_a_killed_worker_ends_the_stream_cleanly_and_the_next_request_is_answered(tmp_path: Path) -> None:
    async with service(tmp_path, options={"kill_at": 4, "once": str(tmp_path / "once")}) as faulty:
        seen = await faulty.events()
        assert checked(seen[-1])["code"] == "engine_failed"
        assert "[DONE]" not in seen
        status, body, _ = await faulty.call("GET", "/health")
        assert (status, body["error"]["code"]) == (503, "model_loading")
        assert (await faulty.chat())[1]["choices"][0]["message"]["content"] == "hello"
        assert (await faulty.call("GET", "/health"))[0] == 200
