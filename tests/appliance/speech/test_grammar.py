"""The grammar of a begun call takes what the form's models write, and nothing that is no call of an offered tool."""

import json

import pytest
from llguidance import LLMatcher, LLTokenizer

from appliance.speech.deepseek import BEGIN
from appliance.speech.toolset import ToolSet, listen
from engine import constrain
from tests.appliance.speech.answers import read
from tests.chats import TOOLS

OSLO = '{"city": "Oslo", "days": 2}'
TAGS = "<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
PAIRS = "<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n"
# A template's marks -> how the model goes on when any tool may be called, and when this one must.
RESTS = {
    "<tool_call>": (f' "get_weather", "arguments": {OSLO}}}\n</tool_call>', f" {OSLO}}}\n</tool_call>"),
    "<tool_call> <function=": (f"get_weather>\n{TAGS}</function>\n</tool_call>", f"{TAGS}</function>\n</tool_call>"),
    "<tool_call> <arg_key>": (f"get_weather\n{PAIRS}</tool_call>", f"{PAIRS}</tool_call>"),
    "[TOOL_CALLS]": (f' "get_weather", "arguments": {OSLO}}}]', f" {OSLO}}}]"),
    "<tool_calls>": (f' "get_weather", "arguments": {OSLO}}}]</tool_calls>', f" {OSLO}}}]</tool_calls>"),
    '<|start_header_id|> "parameters": ': (f' "get_weather", "parameters": {OSLO}}}', f" {OSLO}}}"),
    # Behind a free name come tokens that are no text: there the name is the model's own business.
    "[TOOL_CALLS] [ARGS]": ("", OSLO),
    BEGIN: ("", OSLO),
    f"{BEGIN} ```json": ("", f"{OSLO}\n```"),
    "<|channel|> <|message|>": ("", OSLO),
}


def faults(grammar: str) -> str:
    return constrain.check(constrain.lark(grammar))


def taken(grammar: str, text: str) -> tuple[bool, bool]:
    """Whether all of `text` is taken, and whether nothing may follow."""
    matcher = LLMatcher(LLTokenizer("byte"), constrain.lark(grammar), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    raw = list(text.encode())
    return matcher.try_consume_tokens(raw) == len(raw), matcher.is_stopped()


@pytest.mark.parametrize("name", [None, "get_weather"])
@pytest.mark.parametrize("template", RESTS)
def test_a_begun_call_goes_on_in_its_own_form_and_ends(template: str, name: str | None) -> None:
    _, speech = listen(template, "PROMPT", ToolSet(TOOLS, must=True, name=name), faults=faults)
    text = RESTS[template][1 if name else 0]
    assert bool(speech.grammar) == bool(text)
    if not text:
        return
    assert taken(speech.grammar, text) == (True, True)
    ((called, arguments),) = read(speech, [text])["calls"]
    assert (called, json.loads(arguments)) == ("get_weather", json.loads(OSLO))
    wrong = [text.replace("city", "town", 1), text.replace("get_weather", "rm"), "Well, " + text]
    assert [one for one in wrong if one != text and taken(speech.grammar, one)[0]] == []


def test_a_schema_that_no_grammar_can_keep_to_leaves_the_object_to_the_model() -> None:
    hard = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)y"}}, "required": ["a"]}
    tools = [{"type": "function", "function": {"name": "f", "parameters": hard}}]
    _, speech = listen("<tool_call>", "PROMPT", ToolSet(tools, must=True, name="f"), faults=faults)
    assert taken(speech.grammar, ' {"anything": [1]}}\n</tool_call>') == (True, True)
    assert not taken(speech.grammar, " 5}")[0]


def test_a_tool_without_parameters_takes_nothing() -> None:
    tools = [{"type": "function", "function": {"name": "now"}}]
    _, speech = listen("<tool_call>", "PROMPT", ToolSet(tools, must=True), faults=faults)
    assert taken(speech.grammar, ' "now", "arguments": {}}\n</tool_call>') == (True, True)
    assert not taken(speech.grammar, ' "now", "arguments": {"a"')[0]


def test_only_a_call_that_must_come_has_a_grammar() -> None:
    assert listen("<tool_call>", "PROMPT", ToolSet(TOOLS), faults=faults)[1].grammar == ""
