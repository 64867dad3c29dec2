"""Whatever a model writes: the same is read however it is cut, and what is handed out as a call is JSON.

Answers are put together from the marks of all forms and pieces of calls, in any order.
"""

import json
import random

import pytest

from appliance.speech.bare import Bare
from appliance.speech.deepseek import BEGIN, CALL, CALL_END, END, SEP, DeepSeek
from appliance.speech.listed import Listed
from appliance.speech.speech import THINK, Speech
from appliance.speech.tagged import Tagged
from tests.appliance.speech.answers import TOOLS, read

N_ANSWERS = 250
PIECES = [
    *THINK, "\n", " ", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "ab", "get_weather", "now",
    "rm", '{"name": "now", "arguments": {}}', '{"name":', ' "get_weather",', '"arguments": ', '{"city": "Oslo"}', "{",
    "}", "[", "]", ",", '"', "\\", "true", "<function=", "get_weather>", "<parameter=city>", "x", "</parameter>",
    "</function>", "<arg_key>", "city", "</arg_key>", "<arg_value>", "v", "</arg_value>", BEGIN, END, CALL, SEP,
    CALL_END, "function", "```json\n", "```", "<|channel|>", "final", "analysis", "commentary to=functions.now",
    "<|message|>", "<|end|>", "<|start|>", "assistant", "<|tool_call|>", "<tool_calls>", "</tool_calls>",
    "<|python_tag|>", "parameters", ";", "hello", "<", "|", ">",
]  # fmt: skip
SPEECHES = {
    **{form.__name__: Speech(thought=THINK, form=form, tools=TOOLS) for form in (Tagged, Listed, Bare, DeepSeek)},
    "one call": Speech(thought=THINK, form=Tagged, tools=TOOLS, most_calls=1),
    "thinking": Speech(thought=THINK, form=Tagged, tools=TOOLS, is_thinking=True),
    "harmony": Speech(is_harmony=True, tools=TOOLS),
    "no tools": Speech(thought=THINK),
}


@pytest.mark.parametrize("name", SPEECHES)
def test_the_cuts_change_nothing_and_calls_are_json(name: str) -> None:
    dice = random.Random(name)
    for _ in range(N_ANSWERS):
        text = "".join(dice.choices(PIECES, k=dice.randint(1, 14)))
        was_cut = dice.random() < 0.3
        whole = read(SPEECHES[name], [text], was_cut)
        assert read(SPEECHES[name], list(text), was_cut) == whole, text
        at = dice.randrange(len(text))
        assert read(SPEECHES[name], [text[:at], text[at:]], was_cut) == whole, (at, text)
        for called, arguments in whole.get("calls", ()):
            assert called in TOOLS
            assert was_cut or isinstance(json.loads(arguments), dict), text
