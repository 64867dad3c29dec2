"""Calls of tools in every form, whole, cut and broken, however the text is cut. Not here: harmony's channels."""

import json
from typing import Any

import pytest

from appliance.speech.bare import Bare
from appliance.speech.deepseek import BEGIN, CALL, CALL_END, END, SEP, DeepSeek
from appliance.speech.forms import Form
from appliance.speech.listed import Listed
from appliance.speech.speech import THINK, Speech, form_of
from appliance.speech.tagged import Tagged
from appliance.speech.toolset import ToolSet, listen
from engine.errors import RequestError
from tests.appliance.speech.answers import TOOLS, read, read_in_every_way
from tests.chats import TOOLS as OFFERED

OSLO = '{"city": "Oslo", "days": 2}'
TAGS = "<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
PAIRS = "<arg_key>city</arg_key><arg_value>Oslo</arg_value><arg_key>days</arg_key><arg_value>2</arg_value>"


def speech(form: type[Form], **more: Any) -> Speech:
    return Speech(thought=THINK, form=form, tools=TOOLS, **more)


# Each form's way to write the same two calls after some words.
TWICE = {
    "Hermes": (Tagged, 'Let me see.\n<tool_call>\n{"name": "get_weather", "arguments": ' + OSLO + "}\n</tool_call>\n"
               '<tool_call>\n{"arguments": {}, "name": "now"}\n</tool_call>'),
    "Qwen3-Coder": (Tagged, "Let me see.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
                    "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n"
                    "</function>\n</tool_call>"),
    "GLM": (Tagged, "Let me see.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n"
            "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>\n"),
    "Mistral Nemo": (Listed, 'Let me see.[TOOL_CALLS][{"name": "get_weather", "arguments": ' + OSLO +
                     ', "id": "abcdefghi"}, {"name": "now", "arguments": {}, "id": "bcdefghij"}]'),
    "Mistral Small": (Listed, "Let me see.[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]" + OSLO +
                      "[TOOL_CALLS]now[ARGS]{}"),
    "Granite": (Listed, 'Let me see. <|tool_call|>[{"name": "get_weather", "arguments": ' + OSLO +
                '}, {"name": "now", "arguments": {}}]'),
    "Apriel": (Listed, 'Let me see.\n<tool_calls>[{"name": "get_weather", "arguments": ' + OSLO +
               '}, {"name": "now", "arguments": {}}]</tool_calls>'),
    "DeepSeek V3.1": (DeepSeek, f"Let me see.{BEGIN}{CALL}get_weather{SEP}{OSLO}{CALL_END}"
                      f"{CALL}now{SEP}{{}}{CALL_END}{END}"),
    "DeepSeek R1": (DeepSeek, f"Let me see.\n{BEGIN}{CALL}function{SEP}get_weather\n```json\n{OSLO}\n```{CALL_END}\n"
                    f"{CALL}function{SEP}now\n```json\n{{}}\n```{CALL_END}{END}"),
}  # fmt: skip


@pytest.mark.parametrize("name", TWICE)
def test_words_and_two_calls(name: str) -> None:
    form, text = TWICE[name]
    calls = [("get_weather", OSLO), ("now", "{}")]
    expected = {"thoughts": "", "said": "Let me see.", "calls": calls}
    assert read_in_every_way(speech(form), text) == expected
    with_thoughts = "<think>\nWeather.\n</think>\n\n" + text
    assert read_in_every_way(speech(form), with_thoughts) == expected | {"thoughts": "Weather."}
    assert read(speech(form, most_calls=1), [text])["calls"] == calls[:1]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('{"name": "get_weather", "parameters": ' + OSLO + "}", [("get_weather", OSLO)]),
        (' \n{"name": "get_weather", "parameters": ' + OSLO + '}; {"name": "now", "parameters": {}}\n',
         [("get_weather", OSLO), ("now", "{}")]),
        ('<|python_tag|>{"type": "function", "name": "now", "parameters": {}}', [("now", "{}")]),
        ('{"name": "now"}', [("now", "{}")]),
        ('{"name": "now", "parameters": null}', [("now", "{}")]),
        ('{"name": "get_weather", "parameters": "{\\"city\\": \\"Oslo\\"}"}', [("get_weather", '{"city": "Oslo"}')]),
    ],
)  # fmt: skip
def test_llama_calls_with_bare_json(text: str, calls: list[tuple[str, str]]) -> None:
    assert read_in_every_way(speech(Bare), text) == {"thoughts": "", "said": "", "calls": calls}


@pytest.mark.parametrize(
    "text",
    [
        '{"city": "Oslo", "sky": "rain"}', '{"name": "Oslo", "sky": "rain"}', "{ not json", "{", "[1, 2]",
        'Here: {"name": "now", "parameters": {}}',
    ],
)  # fmt: skip
def test_json_that_calls_nothing_is_the_answer(text: str) -> None:
    """A user may ask for JSON although tools are offered."""
    assert read_in_every_way(speech(Bare), text) == {"thoughts": "", "said": text, "calls": []}
    assert read_in_every_way(speech(Bare), text, was_cut=True)["said"] == text


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Tagged, 'So <tool_call>\n{"name": "rm", "arguments": {"a": 1}}\n</tool_call> done'),
        (Tagged, "So <tool_call>\n<function=rm>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"),
        (Tagged, "The tag <tool_call> begins a call."),
        (Tagged, "<tool_call>"),
        (Listed, '[TOOL_CALLS][{"name": "rm", "arguments": {}}]'),
        (Listed, "[TOOL_CALLS]rm[ARGS]{}"),
        (DeepSeek, f"{BEGIN}{CALL}rm{SEP}{{}}{CALL_END}{END}"),
        (Bare, '{"name": "rm", "parameters": {}}'),
    ],
)
def test_a_call_of_nothing_that_was_offered_is_text(form: type[Form], text: str) -> None:
    assert read_in_every_way(speech(form), text) == {"thoughts": "", "said": text, "calls": []}


def test_a_text_without_calls_keeps_its_white_space() -> None:
    assert read_in_every_way(speech(Tagged), "a \n\n b <tool \n")["said"] == "a \n\n b <tool \n"


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Tagged, '<tool_call>{"name": "get_weather", "arguments": {"city": Oslo}}</tool_call>'),
        (Tagged, '<tool_call>{"name": "get_weather", "arguments": [1]}</tool_call>'),
        (Tagged, '<tool_call>{"name": "get_weather", "arguments": {"city": "Os'),
        (Tagged, "<tool_call><function=get_weather><parameter=city>Oslo"),
        (Tagged, "<tool_call>get_weather<arg_key>city</arg_key><arg_value>a</arg_value><arg_key>city</arg_key>"
                 "<arg_value>b</arg_value></tool_call>"),
        (Listed, "[TOOL_CALLS]get_weather[ARGS]{city}"),
        (DeepSeek, f"{BEGIN}{CALL}get_weather{SEP}{{'a': 1}}{CALL_END}"),
    ],
)  # fmt: skip
def test_arguments_that_are_no_json_are_an_error_not_a_call(form: type[Form], text: str) -> None:
    assert "'get_weather'" in read_in_every_way(speech(form), text)["wrong"]


@pytest.mark.parametrize("name", [*TWICE, "Llama"])
def test_an_answer_that_is_cut_leaks_no_markup_and_ends_inside_a_call(name: str) -> None:
    form, text = TWICE.get(name, (Bare, '{"name": "get_weather", "parameters": ' + OSLO + "}"))
    whole = read(speech(form), [text])
    for at in range(1, len(text)):
        cut = read(speech(form), [text[:at]], was_cut=True)
        assert "wrong" not in cut, text[:at]
        assert whole["said"].startswith(cut["said"].rstrip()) or name == "Llama", (text[:at], cut["said"])
        for (seen, arguments), (called, expected) in zip(cut["calls"], whole["calls"], strict=False):
            assert seen == called
            assert expected.startswith(arguments) or json.loads(arguments) is not None, (text[:at], arguments)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}</tool_call>', '{"city": "Oslo"}'),
        ('<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}', '{"city": "Oslo"}'),
        ('<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"', '{"city": "Oslo"}'),
        ('<tool_call>{"arguments": "{\\"city\\": \\"Oslo\\"}", "name": "get_weather"}</tool_call>', '{"city": "Oslo"}'),
        ('<tool_call>{"name": "get_weather", "arguments": {"city": "a\nb", "exact": True,}}</tool_call>',
         '{"city": "a\\nb", "exact": true}'),
    ],
)  # fmt: skip
def test_what_leaves_no_doubt_is_set_right(text: str, arguments: str) -> None:
    found = read_in_every_way(speech(Tagged), text)
    assert [call[1] for call in found["calls"]] == [arguments], found


def test_tags_take_their_types_from_the_schema() -> None:
    text = (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\nline <b>\n</parameter>\n<parameter=days>\n7\n"
        '</parameter>\n<parameter=exact>\nTrue\n</parameter>\n<parameter=where>\n{"x": [1, 2]}\n</parameter>\n'
        "<parameter=other>\n5\n</parameter>\n</function>\n</tool_call>"
    )
    (call,) = read_in_every_way(speech(Tagged), text)["calls"]
    wanted = {"city": "12\nline <b>", "days": 7, "exact": True, "where": {"x": [1, 2]}, "other": "5"}
    assert json.loads(call[1]) == wanted


@pytest.mark.parametrize(
    ("template", "form"),
    [
        ("… <tool_call> …", Tagged), ("… [TOOL_CALLS] …", Listed), ("<|tool_call|>", Listed),
        (BEGIN, DeepSeek), ('<|start_header_id|> {"name": x, "parameters": y}', Bare), ("chatml", None),
    ],
)  # fmt: skip
def test_the_template_tells_the_form(template: str, form: type[Form] | None) -> None:
    assert form_of(template) is form


@pytest.mark.parametrize("name", [None, "get_weather"])
@pytest.mark.parametrize(
    ("template", "goes_on", "goes_on_named"),
    [
        ("<tool_call>", ' "get_weather", "arguments": ' + OSLO + "}\n</tool_call>", f" {OSLO}}}\n</tool_call>"),
        ("<tool_call> <function=", f"get_weather>\n{TAGS}</function>", f"{TAGS}</function>"),
        ("<tool_call> <arg_key>", f"get_weather\n{PAIRS}</tool_call>", f"{PAIRS}</tool_call>"),
        ("[TOOL_CALLS]", ' "get_weather", "arguments": ' + OSLO + "}]", f" {OSLO}}}]"),
        ("[TOOL_CALLS] [ARGS]", "get_weather[ARGS]" + OSLO, OSLO),
        (BEGIN, f"get_weather{SEP}{OSLO}", OSLO),
        ('<|start_header_id|> "parameters": ', ' "get_weather", "parameters": ' + OSLO + "}", f" {OSLO}}}"),
        ("<|channel|> <|message|>", "get_weather <|constrain|>json<|message|>" + OSLO, OSLO),
    ],
)  # fmt: skip
def test_a_call_that_must_come_is_begun_in_the_prompt(
    template: str, goes_on: str, goes_on_named: str, name: str | None
) -> None:
    prompt, made = listen(template, "PROMPT", ToolSet(OFFERED, must=True, name=name))
    assert prompt.startswith("PROMPT") and prompt == "PROMPT" + made.begun and not prompt.endswith(" ")
    found = read_in_every_way(made, goes_on_named if name else goes_on)
    assert found == {"thoughts": "", "said": "", "calls": [("get_weather", OSLO)]}


def test_a_model_that_thinks_already_is_brought_to_its_call() -> None:
    prompt, made = listen("<think> <tool_call>", "<|im_start|>assistant\n<think>\n", ToolSet(OFFERED, must=True))
    assert prompt == '<|im_start|>assistant\n<think>\n</think>\n\n<tool_call>\n{"name":'
    assert read(made, [' "get_time"}'])["calls"] == [("get_time", "{}")]


@pytest.mark.parametrize("template", ["<tool_call>", "[TOOL_CALLS] [ARGS]", "<|channel|> <|message|>"])
def test_an_answer_that_must_call_and_does_not_is_an_error(template: str) -> None:
    _, made = listen(template, "PROMPT", ToolSet(OFFERED, must=True))
    for text in (' "rm", "arguments": {}}</tool_call>', "rm[ARGS]{}", "rm<|message|>{}", ""):
        assert "named none" in read_in_every_way(made, text)["wrong"]
    assert read(made, [""], was_cut=True)["calls"] == []


def test_a_form_that_nobody_reads_is_refused() -> None:
    with pytest.raises(RequestError, match="a form that is not read here"):
        listen("<|tools_prefix|>", "x", ToolSet(OFFERED))
