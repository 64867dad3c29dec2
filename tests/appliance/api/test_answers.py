"""Answers in OpenAI's shape, plain and streamed: the same text, the same counts, nothing left out."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.appliance.api.service import Service, service

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_plain_answer_has_every_field_of_the_type(shared: Service) -> None:
    status, body, headers = await shared.chat(model="small", metadata={"a": "b"}, service_tier="auto", store=True)
    assert status == 200
    assert body["id"].startswith("chatcmpl-")
    assert (body["object"], body["model"], body["service_tier"]) == ("chat.completion", "small", "default")
    assert isinstance(body["created"], int)
    assert body["system_fingerprint"].startswith("fp_")
    message = {"role": "assistant", "content": "hello", "refusal": None}
    assert body["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}
    assert {"prompt_n", "prompt_ms", "predicted_n", "predicted_per_second", "queue_ms"} <= set(body["timings"])
    assert body["colibri"]["seed"] == 7
    assert "store" in body["colibri"]["notes"][0]
    assert headers["x-request-id"].startswith("req_")


async def test_the_model_may_be_left_out_or_named_by_any_of_its_names(shared: Service) -> None:
    assert (await shared.chat())[1]["model"] == "tiny/model:q4"
    status, body, _ = await shared.chat(model="nope")
    assert (status, body["error"]["code"], body["error"]["param"]) == (404, "model_not_found", "model")
    assert "tiny/model:q4" in body["error"]["message"]


async def test_a_stream_opens_with_the_role_and_ends_with_one_done(shared: Service) -> None:
    seen = await shared.events()
    assert seen[-1] == "[DONE]"
    chunks = seen[:-1]
    assert {(c["id"], c["created"], c["model"], c["system_fingerprint"], c["object"]) for c in chunks} == {
        (
            chunks[0]["id"],
            chunks[0]["created"],
            "tiny/model:q4",
            chunks[0]["system_fingerprint"],
            "chat.completion.chunk",
        )
    }
    deltas = [c["choices"][0]["delta"] for c in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(d["content"] for d in deltas[1:-1]) == "hello"
    assert deltas[-1] == {}
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert all("usage" not in c for c in chunks)


async def test_usage_comes_when_asked_for_in_the_last_chunk_alone(shared: Service) -> None:
    *chunks, last, done = await shared.events(stream_options={"include_usage": True})
    assert done == "[DONE]"
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 6
    assert all(c["usage"] is None and c["choices"] for c in chunks)
    assert "usage" not in (await shared.events(stream_options=None))[0]


async def test_stream_headers_keep_proxies_from_holding_it_back(shared: Service) -> None:
    headers = {"Authorization": f"Bearer {shared.user}", "Content-Type": "application/json"}
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "stream": True})
    async with shared.client.post(shared.base + "/v1/chat/completions", data=body, headers=headers) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["Cache-Control"] == "no-cache"
        assert answer.headers["X-Accel-Buffering"] == "no"
        assert "X-Request-Id" in answer.headers
        await answer.read()


@pytest.mark.parametrize(
    ("limits", "n"),
    [
        ({"max_tokens": 3}, 3),
        ({"max_completion_tokens": 3}, 3),
        ({"max_tokens": 4, "max_completion_tokens": 2}, 2),
        ({"max_tokens": None, "max_completion_tokens": 1}, 1),
    ],
)
async def test_the_smaller_limit_counts_and_says_length(shared: Service, limits: dict[str, Any], n: int) -> None:
    _, body, _ = await shared.chat(**limits)
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["choices"][0]["message"]["content"] == "hello"[:n]
    assert body["usage"]["completion_tokens"] == n


@pytest.mark.parametrize("limit", [-1, 9223372036854775808, None])
async def test_no_limit_or_a_huge_one_is_the_context(shared: Service, limit: int | None) -> None:
    status, body, _ = await shared.chat(max_tokens=limit)
    assert (status, body["choices"][0]["finish_reason"]) == (200, "stop")


async def test_stop_strings_end_plain_and_streamed_answers_alike(shared: Service) -> None:
    _, body, _ = await shared.chat(stop=["zz", "lo"])
    assert body["choices"][0]["message"]["content"] == "hel"
    assert body["choices"][0]["finish_reason"] == "stop"
    chunks = (await shared.events(stop="lo"))[:-1]
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "hel"


async def test_logprobs_carry_the_token_its_bytes_and_its_rivals(shared: Service) -> None:
    _, body, _ = await shared.chat(logprobs=True, top_logprobs=2, max_tokens=2)
    content = body["choices"][0]["logprobs"]["content"]
    assert [(c["token"], c["bytes"], c["logprob"]) for c in content] == [("h", [104], -0.5), ("e", [101], -0.5)]
    assert [(t["token"], t["logprob"]) for t in content[0]["top_logprobs"]] == [("h", -0.5), ("a", -9999.0)]
    _, bare, _ = await shared.chat(logprobs=True, max_tokens=1)
    assert bare["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []
    chunks = (await shared.events(logprobs=True, top_logprobs=1))[1:-2]
    assert [c["choices"][0]["logprobs"]["content"][0]["token"] for c in chunks] == list("hello")


async def test_several_answers_are_computed_one_after_the_other(shared: Service) -> None:
    _, body, _ = await shared.chat(n=3, max_tokens=2)
    assert [c["index"] for c in body["choices"]] == [0, 1, 2]
    assert [c["message"]["content"] for c in body["choices"]] == ["he"] * 3
    assert body["usage"]["completion_tokens"] == 6
    assert body["usage"]["prompt_tokens"] == (await shared.chat(max_tokens=2))[1]["usage"]["prompt_tokens"]
    chunks = (await shared.events(n=2, max_tokens=2))[:-1]
    assert {c["choices"][0]["index"] for c in chunks} == {0, 1}
    assert [c["choices"][0]["index"] for c in chunks if c["choices"][0]["finish_reason"]] == [0, 1]


async def test_completions_take_texts_and_ids_and_echo_them(shared: Service) -> None:
    _, one, _ = await shared.call("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 2, "echo": True})
    assert (one["object"], one["choices"][0]["text"]) == ("text_completion", "Oncehe")
    assert one["choices"][0]["finish_reason"] == "length"
    _, two, _ = await shared.call(
        "POST", "/v1/completions", {"prompt": ["a", "b"], "n": 2, "echo": True, "max_tokens": 1}
    )
    assert [c["text"] for c in two["choices"]] == ["ah", "ah", "bh", "bh"]
    assert two["usage"]["prompt_tokens"] == 2
    _, ids, _ = await shared.call("POST", "/v1/completions", {"prompt": [[5, 6], [7]], "max_tokens": 1, "logprobs": 0})
    assert ids["usage"]["prompt_tokens"] == 3
    assert ids["choices"][0]["logprobs"] == {
        "tokens": ["h"], "token_logprobs": [-0.5], "top_logprobs": None, "text_offset": [0]
    }  # fmt: skip
    status, refused, _ = await shared.call("POST", "/v1/completions", {"prompt": ["a"] * 9})
    assert (status, refused["error"]["param"]) == (400, "prompt")


async def test_streamed_completions_echo_first_and_count_offsets_on(shared: Service) -> None:
    *chunks, done = await shared.events("/v1/completions", prompt="ab", echo=True, max_tokens=2)
    assert done == "[DONE]"
    assert "".join(c["choices"][0]["text"] for c in chunks) == "abhe"
    *chunks, _ = await shared.events("/v1/completions", prompt="ab", logprobs=1, max_tokens=3)
    logprobs = [c["choices"][0]["logprobs"] for c in chunks if c["choices"][0]["logprobs"]]
    assert [offset for lp in logprobs for offset in lp["text_offset"]] == [0, 1, 2]
    assert logprobs[1]["top_logprobs"] == [{"e": -0.5}]


async def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(shared: Service) -> None:
    for content in ("word " * 600, "x" * 3_000_000):
        status, body, _ = await shared.chat(messages=[{"role": "user", "content": content}])
        error = body["error"]
        assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
        assert error["n_ctx"] == 512
        assert error["n_prompt_tokens"] > 512
        assert len(error["message"]) < 400


async def test_progress_is_told_when_asked_for(tmp_path: Path) -> None:
    async with service(tmp_path, options={"chunk": 10, "chunk_s": 0.11}) as slow:
        *chunks, _ = await slow.events(return_progress=True)
        told = [c["prompt_progress"] for c in chunks if "prompt_progress" in c]
        assert told[0]["processed"] == 0
        assert told[-1]["processed"] == told[-1]["total"] > 10
        assert all(a["processed"] <= b["processed"] for a, b in pairwise(told))
        assert all("prompt_progress" not in c for c in (await slow.events())[:-1])


async def test_a_client_s_time_limit_ends_the_answer_like_a_token_limit(tmp_path: Path) -> None:
    async with service(tmp_path, options={"text": "abc", "step_s": 0.02}) as slow:
        _, body, _ = await slow.chat(t_max_predict_ms=200)
        assert body["choices"][0]["finish_reason"] == "length"
        assert body["choices"][0]["message"]["content"].startswith("abc")
        assert 1 <= body["usage"]["completion_tokens"] < 100
        assert (await slow.chat(max_tokens=1))[0] == 200


async def test_the_operator_s_time_limit_is_an_error_that_no_sdk_repeats(tmp_path: Path) -> None:
    async with service(tmp_path, options={"text": "abc", "step_s": 0.02}, timeout=0.3) as slow:
        status, body, headers = await slow.chat()
        assert (status, body["error"]["code"], headers["x-should-retry"]) == (504, "answer_timeout", "false")
        seen = await slow.events()
        assert seen[-1]["error"]["code"] == "answer_timeout"
        assert (await slow.chat(max_tokens=1))[0] == 200
