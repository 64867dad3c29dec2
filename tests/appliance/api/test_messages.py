"""Anthropic's own client against /v1/messages: plain, streamed, tools, thoughts, counts, errors."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
import pytest_asyncio

from tests.appliance.api.service import Service, service
from tests.appliance.api.test_tools import CALLS, HERMES

pytestmark = pytest.mark.asyncio(loop_scope="module")
HI: list[Any] = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOLS: list[Any] = [
    {"name": "get_weather", "description": "Weather", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}},
    {"name": "get_time", "input_schema": {"type": "object", "properties": {}}},
]
ASK: dict[str, Any] = {"model": "small", "max_tokens": 1000, "messages": HI}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calling(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """Thinks, says something and calls two tools, whatever it is asked."""
    async with service(tmp_path_factory.mktemp("calling"), options={"text": CALLS}, **HERMES) as running:
        yield running


def client(running: Service) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=running.base, api_key=running.user, max_retries=0)


async def test_a_question_is_answered(shared: Service) -> None:
    async with client(shared) as asking:
        made = await asking.messages.create(
            **ASK, system="Be short.", metadata={"user_id": "u"}, extra_body={"top_k": 5, "temperature": 0.5}
        )
    assert made.id.startswith("msg_") and made.type == "message" and made.role == "assistant"
    assert [block.to_dict() for block in made.content] == [{"type": "text", "text": "hello"}]
    assert (made.stop_reason, made.stop_sequence, made.model) == ("end_turn", None, "small")
    assert made._request_id is not None and made._request_id.startswith("req_")
    status, chat, _ = await shared.chat(messages=[{"role": "system", "content": "Be short."}, *HI])
    n_prompt = made.usage.input_tokens + (made.usage.cache_read_input_tokens or 0)
    assert (status, n_prompt) == (200, chat["usage"]["prompt_tokens"])
    assert made.usage.output_tokens == chat["usage"]["completion_tokens"]


async def test_limits_and_stop_texts_are_told_apart(shared: Service) -> None:
    async with client(shared) as asking:
        cut = await asking.messages.create(**{**ASK, "max_tokens": 2})
        stopped = await asking.messages.create(**ASK, stop_sequences=["lo"])
    assert (cut.stop_reason, cut.content[0].to_dict()["text"]) == ("max_tokens", "he")
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "lo")
    assert stopped.content[0].to_dict()["text"] == "hel"


async def test_thoughts_text_and_calls_are_blocks_plain_and_streamed(calling: Service) -> None:
    """The client's own accumulator makes of the events what the plain answer says."""
    async with client(calling) as asking:
        whole = await asking.messages.create(**ASK, tools=TOOLS, thinking={"type": "adaptive"})
        async with asking.messages.stream(**ASK, tools=TOOLS, thinking={"type": "adaptive"}) as stream:
            kinds = [event.type async for event in stream]
            joined = await stream.get_final_message()
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use", "tool_use"]
    thought, text, weather, time = whole.content
    assert (thought.to_dict()["thinking"], text.to_dict()["text"]) == ("We look up", "A moment")
    assert (weather.to_dict()["name"], weather.to_dict()["input"]) == ("get_weather", {"city": "Oslo", "days": 2})
    assert (time.to_dict()["name"], time.to_dict()["input"]) == ("get_time", {})
    assert whole.stop_reason == joined.stop_reason == "tool_use"

    def said(message: Any) -> list[Any]:
        return [{k: v for k, v in block.to_dict().items() if k != "id"} for block in message.content]

    assert said(joined) == said(whole)
    assert joined.usage.output_tokens == whole.usage.output_tokens
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop" and kinds[-2] == "message_delta"
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 4


async def test_every_event_is_named_and_the_blocks_do_not_overlap(calling: Service) -> None:
    headers = {"Authorization": f"Bearer {calling.user}"}
    body = {**ASK, "tools": TOOLS, "stream": True}
    async with calling.client.post(f"{calling.base}/v1/messages", json=body, headers=headers) as answer:
        raw = await answer.text()
    open_block, n_seen = None, 0
    for block in (one for one in raw.split("\n\n") if one and not one.startswith(":")):
        name, data = (line.partition(": ")[2] for line in block.split("\n"))
        event = json.loads(data)
        assert event["type"] == name
        if name == "content_block_start":
            assert open_block is None and event["index"] == n_seen
            open_block, n_seen = event["index"], n_seen + 1
        elif name == "content_block_delta":
            assert event["index"] == open_block
        elif name == "content_block_stop":
            assert event["index"] == open_block
            open_block = None
    assert n_seen == 4 and "[DONE]" not in raw


async def test_calls_and_their_results_go_back_into_the_prompt(calling: Service) -> None:
    """The same ids as the same conversation in OpenAI's words."""
    turns: list[Any] = [
        *HI,
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "We look up", "signature": ""}, {"type": "text", "text": "A moment"},
            {"type": "tool_use", "id": "abcdefghi", "name": "get_weather", "input": {"city": "Oslo"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "abcdefghi", "content": [{"type": "text", "text": "rain"}]},
            {"type": "text", "text": "So?"}]},
    ]  # fmt: skip
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    same = [
        {"role": "system", "content": "Be short."},
        *HI,
        {"role": "assistant", "content": "A moment", "reasoning_content": "We look up", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "rain"},
        {"role": "user", "content": "So?"},
    ]
    tools = [
        {"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": SCHEMA}},
        {"type": "function", "function": {"name": "get_time", "parameters": TOOLS[1]["input_schema"]}},
    ]
    async with client(calling) as asking:
        system: Any = [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}]
        counted = await asking.messages.count_tokens(model="small", messages=turns, tools=TOOLS, system=system)
        made = await asking.messages.create(**{**ASK, "messages": turns}, tools=TOOLS, system=system)
    fields: dict[str, Any] = {"messages": same, "tools": tools, "chat_template_kwargs": {"enable_thinking": False}}
    _, chat, _ = await calling.chat(**fields)
    n_prompt = made.usage.input_tokens + (made.usage.cache_read_input_tokens or 0)
    assert counted.input_tokens == n_prompt == chat["usage"]["prompt_tokens"]


async def test_a_choice_of_tools_is_kept_to(calling: Service, tmp_path: Path) -> None:
    async with client(calling) as asking:
        silent = await asking.messages.create(**ASK, tools=TOOLS, tool_choice={"type": "none"})
        one = await asking.messages.create(
            **ASK, tools=TOOLS, tool_choice={"type": "auto", "disable_parallel_tool_use": True}
        )
    assert silent.stop_reason == "end_turn" and {block.type for block in silent.content} == {"thinking", "text"}
    assert [block.type for block in one.content] == ["thinking", "text", "tool_use"]
    options = {"text": ' {"city": "Oslo"}}\n</tool_call>.'}
    async with service(tmp_path, options=options, **HERMES) as running, client(running) as asking:
        named = await asking.messages.create(**ASK, tools=TOOLS, tool_choice={"type": "tool", "name": "get_weather"})
    (call,) = named.content
    assert (call.to_dict()["name"], call.to_dict()["input"]) == ("get_weather", {"city": "Oslo"})


async def test_a_call_that_a_limit_cuts_is_left_out_and_told(calling: Service) -> None:
    async with client(calling) as asking:
        made = await asking.messages.create(**{**ASK, "max_tokens": CALLS.index("Oslo")}, tools=TOOLS)
    assert made.stop_reason == "max_tokens" and "tool_use" not in {block.type for block in made.content}
    assert any("left out" in note for note in made.to_dict()["colibri"]["notes"])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [*HI, {"role": "assistant", "content": "He"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]}]},
         "messages[0]"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
        ({"tools": [*TOOLS, TOOLS[0]]}, "tools"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "rm"}}, "tool_choice"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "nonsense"}}}}, "json_schema"),
        ({"mcp_servers": []}, "mcp_servers"),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_named_in_anthropics_shape(shared: Service, fields: dict[str, Any], param: str) -> None:
    status, body, headers = await shared.call("POST", "/v1/messages", {**ASK, **fields})
    assert (status, body["type"], body["error"]["type"]) == (400, "error", "invalid_request_error"), body
    assert body["error"]["param"].startswith(param), body
    assert body["request_id"] == headers["request-id"] == headers["X-Request-Id"]


async def test_the_clients_own_exceptions_are_raised(shared: Service) -> None:
    async with client(shared) as asking:
        with pytest.raises(anthropic.NotFoundError) as missing:
            await asking.messages.create(**{**ASK, "model": "claude"})
        assert "small" in str(missing.value)
        with pytest.raises(anthropic.BadRequestError, match="tokens"):
            await asking.messages.create(**{**ASK, "messages": [{"role": "user", "content": "word " * 5000}]})
    async with anthropic.AsyncAnthropic(base_url=shared.base, api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(anthropic.AuthenticationError):
            await stranger.messages.create(**ASK)


async def test_a_wrong_method_and_a_full_queue_are_told_in_the_same_shape(tmp_path: Path) -> None:
    async with service(tmp_path, options={"text": "h" * 400 + ".", "step_s": 0.05}, max_queue=1) as running:
        status, body, _ = await running.call("GET", "/v1/messages")
        assert (status, body["type"], body["error"]["type"]) == (405, "error", "invalid_request_error")
        tasks = [asyncio.create_task(running.call("POST", "/v1/messages", {**ASK, "top_k": i})) for i in range(4)]
        done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        status, body, headers = done.pop().result()
        assert (status, body["error"]["type"], body["error"]["code"]) == (429, "rate_limit_error", "queue_full")
        assert int(headers["Retry-After"]) >= 1
        for task in waiting:
            task.cancel()


async def test_a_handed_over_answer_says_so(tmp_path: Path) -> None:
    options = {"text": "h" * 400 + ".", "step_s": 0.05}
    busy = {"max_queue": 1, "queue_timeout": 0.3, "handover": "A person will answer you."}
    async with service(tmp_path, options=options, **busy) as running, client(running) as asking:
        first = asyncio.create_task(running.chat())
        async with asyncio.timeout(60):
            while not (await running.call("GET", "/slots"))[1][0]["is_processing"]:
                await asyncio.sleep(0.01)
        made = await asking.messages.create(**ASK)
        async with asking.messages.stream(**{**ASK, "max_tokens": 7}) as stream:
            joined = await stream.get_final_message()
        first.cancel()
    for message in (made, joined):
        assert [block.to_dict()["text"] for block in message.content] == ["A person will answer you."]
        assert message.stop_reason == "end_turn"
    assert made.to_dict()["colibri"]["handoff"]["reason"] == "queue_timeout"


async def test_a_stream_that_breaks_ends_with_an_error_event(tmp_path: Path) -> None:
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": Oslo}}</tool_call>.'
    async with service(tmp_path, options={"text": text}, **HERMES) as running, client(running) as asking:
        with pytest.raises(anthropic.APIStatusError, match="the model"):
            async with asking.messages.stream(**ASK, tools=TOOLS) as stream:
                await stream.get_final_message()
