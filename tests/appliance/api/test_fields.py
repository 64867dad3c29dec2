"""Fields: each is honoured, harmlessly ignored, or refused by name; never taken and dropped."""

import tracemalloc
from typing import Any

import pytest

from appliance.api.fields import HARMLESS, UNBUILT, parse
from appliance.api.schema import ChatRequest, CompletionRequest, TokenizeRequest
from engine.errors import ColibriError

HI = [{"role": "user", "content": "hi"}]


def ask(**fields: Any) -> dict[str, Any]:
    return {"messages": HI, **fields}


def chat(**fields: Any) -> ChatRequest:
    return parse(ChatRequest, ask(**fields))


def refused(**fields: Any) -> ColibriError:
    with pytest.raises(ColibriError) as caught:
        chat(**fields)
    assert caught.value.status == 400
    return caught.value


def test_null_is_not_given() -> None:
    nothing = {name: None for name in [*ChatRequest.model_fields, *UNBUILT] if name != "messages"}
    assert chat(**nothing) == chat()


def test_every_harmless_field_is_taken_and_none_of_them_is_a_field_of_ours() -> None:
    assert chat(**dict.fromkeys(HARMLESS, "x")) == chat()
    assert not HARMLESS & set(ChatRequest.model_fields)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("functions", [{"name": "f"}]),
        ("grammar", "root ::= x"),
        ("mirostat", 2),
        ("audio", {"voice": "x"}),
    ],
)
def test_what_is_not_built_says_so(name: str, value: Any) -> None:
    error = refused(**{name: value})
    assert (error.code, error.param) == ("unsupported_parameter", name)


def test_asking_for_nothing_of_it_is_fine() -> None:
    same = chat(tools=[], tool_choice="none", response_format={"type": "text"}, grammar="", mirostat=0, functions=[])
    assert same.messages == chat().messages
    assert chat(tools=[{"type": "function", "function": {"name": "f"}}], tool_choice="none").messages


def test_an_unknown_field_is_refused_with_the_nearest_name() -> None:
    error = refused(temprature=1)
    assert (error.code, error.param) == ("unsupported_parameter", "temprature")
    assert "'temperature'" in error.message
    assert refused(**{"x" * 5000: 1}).message.count("x") < 200
    assert refused(stream_options={"include_usge": True}).param == "stream_options.include_usge"


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        ("max_tokens", 1.5, "max_tokens"),
        ("max_tokens", "5", "max_tokens"),
        ("max_tokens", True, "max_tokens"),
        ("max_tokens", 0, "max_tokens"),
        ("max_tokens", -2, "max_tokens"),
        ("max_completion_tokens", 0, "max_completion_tokens"),
        ("temperature", "hot", "temperature"),
        ("temperature", -1, "temperature"),
        ("temperature", True, "temperature"),
        ("top_p", 2, "top_p"),
        ("min_p", -0.1, "min_p"),
        ("repeat_penalty", 0, "repeat_penalty"),
        ("presence_penalty", 3, "presence_penalty"),
        ("seed", "x", "seed"),
        ("seed", 1 << 64, "seed"),
        ("stop", 5, "stop"),
        ("stop", ["a", 5], "stop[1]"),
        ("stop", [""], "stop"),
        ("stop", "", "stop"),
        ("stop", ["a"] * 17, "stop"),
        ("stream", "yes", "stream"),
        ("n", 0, "n"),
        ("n", 1_000_000, "n"),
        ("logit_bias", {"hello": 5}, "logit_bias"),
        ("logit_bias", {"5": 101}, "logit_bias"),
        ("logit_bias", [[1, 2]], "logit_bias"),
        ("logprobs", 1, "logprobs"),
        ("top_logprobs", 3, "top_logprobs"),
        ("top_logprobs", 99, "top_logprobs"),
        ("metadata", {"a": 1}, "metadata"),
        ("metadata", {str(i): "x" for i in range(17)}, "metadata"),
        ("modalities", ["audio"], "modalities[0]"),
        ("messages", [], "messages"),
        ("messages", {"role": "user"}, "messages"),
        ("messages", ["hi"], "messages[0]"),
        ("messages", [{"content": "x"}], "messages[0].role"),
        ("messages", [{"role": "wizard", "content": "x"}], "messages[0].role"),
        ("messages", [{"role": "user", "content": 5}], "messages[0].content"),
        ("messages", [{"role": "user", "content": None}], "messages[0]"),
        ("messages", [{"role": "tool", "content": "x"}], "messages[0]"),
        ("messages", [*HI, {"role": "user", "content": [{"type": "text"}]}], "messages[1].content[0]"),
        (
            "messages",
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}],
            "messages[0].content[0].type",
        ),
    ],
)
def test_a_wrong_value_is_refused_where_it_stands(name: str, value: Any, param: str) -> None:
    error = refused(**{name: value})
    assert error.param == param
    assert error.message.startswith(param.split("[")[0])
    assert "\n" not in error.message
    assert "pydantic" not in error.message.lower()


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ColibriError) as caught:
        parse(ChatRequest, {})
    assert (caught.value.param, caught.value.code) == ("messages", "missing_required_parameter")


def test_no_message_repeats_what_was_sent() -> None:
    secret = "the launch code is 0000"
    for fields in ({"temperature": secret}, {"stop": [1, secret]}, {"messages": secret}, {"metadata": {secret: 1}}):
        assert "launch" not in refused(**fields).message


def test_messages_reach_the_template_as_plain_strings() -> None:
    given = [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "Say"}, {"type": "text", "text": " hi."}], "name": "ann"},
        {
            "role": "assistant",
            "content": None,
            "annotations": [],
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, "index": 0}],
        },
        {"role": "tool", "content": "", "tool_call_id": "c"},
    ]
    plain = [message.plain() for message in parse(ChatRequest, {"messages": given}).messages]
    assert plain == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Say hi.", "name": "ann"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "", "tool_call_id": "c"},
    ]


@pytest.mark.parametrize(
    ("prompt", "found"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]]), ("", [""])],
)
def test_prompts_in_all_four_forms(prompt: Any, found: Any) -> None:
    assert parse(CompletionRequest, {"prompt": prompt}).prompts() == found


@pytest.mark.parametrize("prompt", [[], [1, "a"], [[]], [1.5], [True], None, 5, {"a": 1}, [[1, "a"]], [["a"]]])
def test_prompts_in_no_form(prompt: Any) -> None:
    with pytest.raises(ColibriError) as caught:
        parse(CompletionRequest, {"prompt": prompt})
    assert (caught.value.param or "").startswith("prompt")


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"best_of": 3}, "best_of"), ({"suffix": " end"}, "suffix"), ({"echo": True, "logprobs": 1}, "echo")],
)
def test_completion_fields_are_honoured_or_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ColibriError) as caught:
        parse(CompletionRequest, {"prompt": "a", **fields})
    assert caught.value.param == param
    assert parse(CompletionRequest, {"prompt": "a", "best_of": 2, "n": 2}).n == 2


def test_small_routes_are_closed_too() -> None:
    with pytest.raises(ColibriError) as caught:
        parse(TokenizeRequest, {"contents": "a", "content": "b"})
    assert caught.value.param == "contents"


@pytest.mark.parametrize(
    ("model", "body", "words"),
    [
        (ChatRequest, {"messages": [1] * 100_000}, "messages[0]: an object expected"),
        (ChatRequest, {"messages": [{"role": "user", "content": [{}] * 100_000}]}, "messages[0].content[0].type is"),
        (ChatRequest, ask(stop=[1] * 100_000), "stop[0]: a string expected"),
        (ChatRequest, ask(logit_bias={f"x{i}": 1 for i in range(100_000)}), "logit_bias: a token id as key"),
        (ChatRequest, ask(logit_bias={str(i): "x" for i in range(100_000)}), "logit_bias: a number expected"),
        (ChatRequest, ask(logit_bias={"1": 1, "2": 101}), "logit_bias: at most 100.0 expected"),
        (ChatRequest, ask(logit_bias={"1": True}), "logit_bias: a number expected"),
        (ChatRequest, ask(metadata={str(i): "x" for i in range(100_000)}), "metadata: at most 16 items"),
        (CompletionRequest, {"prompt": [1.5] * 100_000}, "prompt[0]: a whole number"),
    ],
)  # fmt: skip
def test_a_hundred_thousand_faults_cost_one(model: type[Any], body: dict[str, Any], words: str) -> None:
    tracemalloc.start()
    with pytest.raises(ColibriError) as caught:
        parse(model, body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.message.startswith(words)
    assert peak < 16 << 20
