"""Harmony's channels become reasoning, text and calls, however the text is cut."""

import pytest

from appliance.speech.speech import Speech
from appliance.speech.toolset import listen
from tests.appliance.speech.answers import TOOLS, read_in_every_way

HARMONY = Speech(is_harmony=True, tools=TOOLS)
ANALYSIS = "<|channel|>analysis<|message|>We look.<|end|><|start|>assistant"


@pytest.mark.parametrize(
    ("text", "thoughts", "said", "calls"),
    [
        ("<|channel|>final<|message|>Rain.", "", "Rain.", []),
        (ANALYSIS + "<|channel|>final<|message|>Rain\n", "We look.", "Rain\n", []),
        (ANALYSIS + '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}',
         "We look.", "", [("get_weather", '{"city": "Oslo"}')]),
        (' to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Oslo"}<|call|>',
         "", "", [("get_weather", '{"city": "Oslo"}')]),
        ("<|channel|>commentary to=now<|message|>{}", "", "", [("now", "{}")]),
        ("<|channel|>commentary to=functions.now<|message|>", "", "", [("now", "{}")]),
        ("<|channel|>commentary<|message|>First this.<|end|><|start|>assistant<|channel|>final<|message|>Then that.",
         "", "First this.\n\nThen that.", []),
        ("<|channel|>commentary to=functions.now<|message|>{}<|end|><|start|>assistant<|channel|>commentary "
         'to=functions.get_weather<|message|>{"city": "Oslo"}', "", "",
         [("now", "{}"), ("get_weather", '{"city": "Oslo"}')]),
        ("Rain, without any header.", "", "Rain, without any header.", []),
        ("<|channel|>analysis<|message|>only thoughts", "only thoughts", "", []),
        ("<|channel|>analysis<|message|>We look.<|start|>assistant<|channel|>final<|message|>Rain.",
         "We look.", "Rain.", []),
        ("<|channel|>final<|message|>a <| b", "", "a <| b", []),
    ],
)  # fmt: skip
def test_channels(text: str, thoughts: str, said: str, calls: list[tuple[str, str]]) -> None:
    assert read_in_every_way(HARMONY, text) == {"thoughts": thoughts, "said": said, "calls": calls}


def test_a_header_that_was_cut_is_nobodys_text() -> None:
    for text in ("<|channel|>fin", "<|chan", ANALYSIS, ANALYSIS + "<|channel|>commentary to=functions.no"):
        assert read_in_every_way(HARMONY, text, was_cut=True)["said"] == ""


def test_a_call_that_was_cut_stays_cut_and_a_broken_one_is_told() -> None:
    begun = '<|channel|>commentary to=functions.get_weather<|message|>{"city": "Os'
    assert read_in_every_way(HARMONY, begun, was_cut=True)["calls"] == [("get_weather", '{"city": "Os')]
    assert "'get_weather'" in read_in_every_way(HARMONY, begun)["wrong"]
    assert "'get_weather'" in read_in_every_way(HARMONY, begun.replace('"Os', "Oslo}"))["wrong"]


def test_a_call_of_something_else_is_no_call() -> None:
    found = read_in_every_way(HARMONY, "<|channel|>commentary to=browser.search<|message|>{}")
    assert found["calls"] == []


def test_without_tools_and_unsplit_the_text_is_left_alone() -> None:
    _, speech = listen("<|channel|> <|message|>", "x", None, splits=False)
    assert read_in_every_way(speech, ANALYSIS)["said"] == ANALYSIS
