"""Tools and reasoning through the whole service, with OpenAI's own client: plain and streamed say the same."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio

from appliance.life import WorkerSpec
from tests.appliance.api.service import Service, service
from tests.chats import TOOLS
from tests.tiny import tiny_llama

pytestmark = pytest.mark.asyncio(loop_scope="module")
CALLS = (
    '<think>We look up</think>\n\nA moment\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", '
    '"days": 2}}\n</tool_call>\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>.'
)
HERMES: dict[str, Any] = {"chat_template": "hermes", "n_ctx": 8192}
HI: list[Any] = [{"role": "user", "content": "hi"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calling(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """Thinks, says something and calls two tools, whatever it is asked."""
    async with service(tmp_path_factory.mktemp("calling"), options={"text": CALLS}, **HERMES) as running:
        yield running


def client(running: Service) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{running.base}/v1", api_key=running.user, max_retries=0)


async def streamed(running: Service, **fields: Any) -> tuple[dict[str, Any], str | None]:
    """The message that a client joins from the deltas, and the finish reason."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "calls": {}}
    finish = None
    async with client(running) as asking:
        stream = await asking.chat.completions.create(model="small", messages=HI, stream=True, **fields)
        async for chunk in stream:
            (choice,) = chunk.choices
            assert finish is None, "nothing comes after the finish reason"
            finish = choice.finish_reason
            message["content"] += choice.delta.content or ""
            message["reasoning_content"] += (choice.delta.model_extra or {}).get("reasoning_content") or ""
            for call in choice.delta.tool_calls or ():
                assert call.function is not None
                if call.index not in message["calls"]:
                    assert call.id and call.function.name and call.type == "function" and call.function.arguments == ""
                    message["calls"][call.index] = [call.id, call.function.name, ""]
                else:
                    assert call.id is None and call.function.name is None
                    message["calls"][call.index][2] += call.function.arguments or ""
    return message, finish


async def test_thoughts_text_and_calls_are_told_apart_plain_and_streamed(calling: Service) -> None:
    async with client(calling) as asking:
        whole = await asking.chat.completions.create(model="small", messages=HI, tools=TOOLS)  # type: ignore[call-overload]
    (choice,) = whole.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "A moment"
    assert choice.message.model_extra["reasoning_content"] == "We look up"
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls]
    assert calls == [("get_weather", {"city": "Oslo", "days": 2}), ("get_time", {})]
    ids = {call.id for call in choice.message.tool_calls}
    assert len(ids) == 2 and all(len(one) == 9 and one.isalnum() for one in ids)
    assert whole.usage.completion_tokens_details.reasoning_tokens >= len("We look up")

    message, finish = await streamed(calling, tools=TOOLS)
    assert (message["content"], message["reasoning_content"], finish) == ("A moment", "We look up", "tool_calls")
    assert [(name, arguments) for _, name, arguments in message["calls"].values()] == [
        (call.function.name, call.function.arguments) for call in choice.message.tool_calls
    ]


async def test_openais_own_accumulator_takes_the_stream(calling: Service) -> None:
    tools: list[Any] = [{**tool, "function": {**tool["function"], "strict": True}} for tool in TOOLS]
    async with (
        client(calling) as asking,
        asking.chat.completions.stream(model="small", messages=HI, tools=tools) as stream,
    ):
        names = [event.name async for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = await stream.get_final_completion()
    assert names == ["get_weather", "get_time"]
    calls = [(call.function.name, call.function.parsed_arguments) for call in final.choices[0].message.tool_calls or ()]
    assert calls == [("get_weather", {"city": "Oslo", "days": 2}), ("get_time", {})]


async def test_an_earlier_turn_with_an_empty_list_of_calls_called_nothing(tmp_path: Path) -> None:
    """Clients send back what they made of an answer; Llama 3.1's template looks whether there is a list."""
    template = "{% for m in messages %}{{ 'calls' if 'tool_calls' in m else m.content }};{% endfor %}"
    async with service(tmp_path, chat_template=template) as running:
        turns = [*HI, {"role": "assistant", "content": "yo", "tool_calls": []}, *HI]
        _, body, _ = await running.call("POST", "/apply-template", {"messages": turns})
    assert body["prompt"] == "hi;yo;hi;"


async def test_a_call_goes_back_with_its_answer(calling: Service) -> None:
    """The model is shown what it called and what came of it."""
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    turns = [
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "We look up"},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "rain"},
    ]
    status, body, _ = await calling.call("POST", "/apply-template", {"messages": turns, "tools": TOOLS})
    assert status == 200
    written = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call><|im_end|>'
    assert written in body["prompt"]
    assert body["prompt"].endswith("<tool_response>\nrain\n</tool_response><|im_end|>\n<|im_start|>assistant\n")
    assert json.dumps(TOOLS[0], ensure_ascii=False) in body["prompt"], "key by key as it was sent"
    status, body, _ = await calling.chat(messages=turns, tools=TOOLS)
    assert (status, body["choices"][0]["finish_reason"]) == (200, "tool_calls")


@pytest.mark.parametrize("fields", [{}, {"tools": []}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": None}])
async def test_nothing_is_called_where_nothing_may_be(calling: Service, fields: dict[str, Any]) -> None:
    _, body, _ = await calling.chat(**fields)
    message = body["choices"][0]["message"]
    assert "tool_calls" not in message and body["choices"][0]["finish_reason"] == "stop"
    assert message["reasoning_content"] == "We look up"
    assert message["content"] == CALLS.partition("</think>\n\n")[2][:-1]


async def test_content_is_null_where_there_are_only_calls_and_one_is_all_when_one_is_wanted(tmp_path: Path) -> None:
    text = CALLS.partition("A moment\n")[2]
    async with service(tmp_path, options={"text": text}, **HERMES) as running:
        _, body, _ = await running.chat(tools=TOOLS)
        assert body["choices"][0]["message"]["content"] is None
        _, body, _ = await running.chat(tools=TOOLS, parallel_tool_calls=False)
        (call,) = body["choices"][0]["message"]["tool_calls"]
        assert call["function"]["name"] == "get_weather"


async def test_a_named_call_is_made(tmp_path: Path) -> None:
    """It is begun in the prompt, so the model writes its arguments only."""
    options = {"text": ' {"city": "Oslo"}}\n</tool_call>.'}
    async with service(tmp_path, options=options, **HERMES) as running:
        choice = {"type": "function", "function": {"name": "get_weather"}}
        _, body, _ = await running.chat(tools=TOOLS, tool_choice=choice)
        (call,) = body["choices"][0]["message"]["tool_calls"]
        assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
        message, finish = await streamed(running, tools=TOOLS, tool_choice=choice)
        ((_, name, arguments),) = message["calls"].values()
        assert (name, arguments, finish) == ("get_weather", '{"city": "Oslo"}', "tool_calls")


@pytest.mark.parametrize("name", [None, "get_weather"])
async def test_a_model_of_noise_makes_the_call_that_it_must(tmp_path: Path, name: str | None) -> None:
    """A real engine with random weights: only the grammar can make its answer a call, and one that fits the schema."""
    model = str(tiny_llama(tmp_path / "noise.gguf"))
    options = {"n_ctx": 4096, "threads": 1}
    schema = {
        "type": "object", "additionalProperties": False, "required": ["unit", "exact"],
        "properties": {"unit": {"enum": ["C", "F"]}, "exact": {"type": "boolean"}},
    }  # fmt: skip
    tools = [{"type": "function", "function": {"name": one, "parameters": schema}} for one in ("get_weather", "now")]
    choice = {"type": "function", "function": {"name": name}} if name else "required"
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools | tojson }}<tool_call>"
    worker = WorkerSpec(model, options)
    async with service(tmp_path, worker=worker, model=model, chat_template=template, n_ctx=4096) as running:
        _, body, _ = await running.chat(tools=tools, tool_choice=choice, seed=3, temperature=2.0, max_tokens=200)
    (call,) = body["choices"][0]["message"]["tool_calls"]
    assert body["choices"][0]["finish_reason"] == "tool_calls"
    assert call["function"]["name"] == name or (name is None and call["function"]["name"] in ("get_weather", "now"))
    arguments = json.loads(call["function"]["arguments"])
    assert set(arguments) == {"unit", "exact"} and arguments["unit"] in ("C", "F"), arguments


async def test_nothing_is_computed_behind_the_only_call_that_is_wanted(calling: Service) -> None:
    _, body, _ = await calling.chat(tools=TOOLS, parallel_tool_calls=False)
    assert body["choices"][0]["finish_reason"] == "tool_calls"
    assert body["usage"]["completion_tokens"] == CALLS.index("</tool_call>") + len("</tool_call>")


async def test_a_call_that_a_limit_cuts_says_length(calling: Service) -> None:
    _, body, _ = await calling.chat(tools=TOOLS, max_tokens=CALLS.index("Oslo"))
    choice = body["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "'


async def test_a_clients_stop_string_cuts_a_call_as_a_limit_does(calling: Service) -> None:
    _, body, _ = await calling.chat(tools=TOOLS, stop="Oslo")
    choice = body["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "'
    _, body, _ = await calling.chat(tools=TOOLS, stop="get_weather")
    assert body["choices"][0]["message"]["content"] == "A moment"
    assert "tool_calls" not in body["choices"][0]["message"]


async def test_null_in_a_tool_is_as_good_as_left_out(calling: Service) -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": None, "parameters": None, "strict": None}}]
    _, body, _ = await calling.call("POST", "/apply-template", {"messages": HI, "tools": tools})
    assert '{"type": "function", "function": {"name": "f"}}' in body["prompt"]


@pytest.mark.parametrize("arguments", ["", "[1]", "{not json", '"text"', "{" * 200])
async def test_whatever_a_model_wrote_as_arguments_may_come_back(calling: Service, arguments: str) -> None:
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    turns = [*HI, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "x", "content": "no"}]
    assert (await calling.chat(messages=turns, tools=TOOLS))[0] == 200


async def test_arguments_that_are_no_json_are_an_error(tmp_path: Path) -> None:
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": Oslo}}</tool_call>.'
    async with service(tmp_path, options={"text": text}, **HERMES) as running:
        status, body, _ = await running.chat(tools=TOOLS)
        assert (status, body["error"]["code"]) == (500, "invalid_tool_call")
        seen = await running.events(tools=TOOLS)
        assert seen[-1]["error"]["code"] == "invalid_tool_call"
        assert (await running.call("GET", "/health"))[0] == 200


async def test_reasoning_may_stay_in_the_text(calling: Service) -> None:
    _, body, _ = await calling.chat(reasoning_format="none")
    message = body["choices"][0]["message"]
    assert message["content"] == CALLS[:-1] and "reasoning_content" not in message


async def test_every_logprob_comes_once_though_text_is_held_back(calling: Service) -> None:
    seen = await calling.events(tools=TOOLS, logprobs=True)
    tokens = [
        token["token"] for chunk in seen[:-1] for choice in chunk["choices"]
        for token in ((choice["logprobs"] or {}).get("content") or ())
    ]  # fmt: skip
    assert "".join(tokens) == CALLS[:-1]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "x"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [*TOOLS, TOOLS[0]]}, "tools"),
        ({"tools": TOOLS, "tool_choice": "always"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "rm"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"reasoning_format": "x"}, "reasoning_format"),
    ],
)
async def test_what_is_wrong_with_tools_is_named(calling: Service, fields: dict[str, Any], param: str) -> None:
    status, body, _ = await calling.chat(**fields)
    assert (status, body["error"]["param"]) == (400, param), body


async def test_tools_are_refused_where_the_template_has_no_place_for_them(shared: Service) -> None:
    status, body, _ = await shared.chat(tools=TOOLS)
    assert (status, body["error"]["code"]) == (400, "template_error")
    assert "no place for tools" in body["error"]["message"]
