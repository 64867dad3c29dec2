"""Reasoning is told from the answer, however the text is cut. Not here: calls of tools, harmony's channels."""

import pytest

from appliance.speech.reader import Reader
from appliance.speech.speech import PLAIN, THINK, Speech
from appliance.speech.toolset import listen
from tests.appliance.speech.answers import read_in_every_way

THINKS = Speech(thought=THINK)
GOES_ON = Speech(thought=THINK, is_thinking=True)


@pytest.mark.parametrize(
    ("speech", "text", "thoughts", "said"),
    [
        (THINKS, "<think>\nSo.\n</think>\n\nYes.\n", "So.", "Yes.\n"),
        (THINKS, "  <think>a < b </thin k></think>ok", "a < b </thin k>", "ok"),
        (THINKS, "<think>\n\n</think>\n\nYes.", "", "Yes."),
        (THINKS, "Yes. <think>no</think>", "", "Yes. <think>no</think>"),
        (THINKS, "\n Yes", "", "\n Yes"),
        (THINKS, "<thin", "", "<thin"),
        (THINKS, "<think>cut", "cut", ""),
        (THINKS, "<think>one\n\ntwo \n</think>", "one\n\ntwo", ""),
        (THINKS, "", "", ""),
        (GOES_ON, "\nSo.\n</think>\nYes.", "So.", "Yes."),
        (GOES_ON, "So", "So", ""),
        (GOES_ON, "</think>Yes", "", "Yes"),
        (PLAIN, "<think>So.</think>Yes", "", "<think>So.</think>Yes"),
        (Speech(thought=("[THINK]", "[/THINK]")), "[THINK]So.[/THINK]Yes", "So.", "Yes"),
    ],
)  # fmt: skip
def test_thoughts_and_text(speech: Speech, text: str, thoughts: str, said: str) -> None:
    assert read_in_every_way(speech, text) == {"thoughts": thoughts, "said": said, "calls": []}
    assert read_in_every_way(speech, text, was_cut=True) == {"thoughts": thoughts, "said": said, "calls": []}


def test_text_is_not_held_back_longer_than_it_may_be_a_mark() -> None:
    reader = Reader(THINKS)
    assert [reader.feed(piece) for piece in ("<", "b", ">")][1] == [("<b",)]
    assert Reader(PLAIN).feed(" \n") == [(" \n",)]
    reader = Reader(GOES_ON)
    assert reader.is_thinking and reader.feed("a </thi")[0].text == "a"  # type: ignore[union-attr]
    assert reader.feed("s")[0].text == " </this"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("template", "prompt", "thought", "is_thinking"),
    [
        ("{{ '<think>' }}", "<|im_start|>assistant\n<think>\n", THINK, True),
        ("{{ '<think>' }}", "<|im_start|>assistant\n<think>\n\n</think>\n\n", THINK, False),
        ("chatml", "<|im_start|>assistant\n", THINK, False),
        ("a [THINK] b", "[/INST]", ("[THINK]", "[/THINK]"), False),
    ],
)
def test_the_prompt_tells_whether_the_model_is_thinking_already(
    template: str, prompt: str, thought: tuple[str, str], is_thinking: bool
) -> None:
    text, speech = listen(template, prompt, None)
    assert (text, speech.thought, speech.is_thinking) == (prompt, thought, is_thinking)


def test_reasoning_stays_in_the_text_when_asked_to() -> None:
    _, speech = listen("{{ '<think>' }}", "x", None, splits=False)
    assert read_in_every_way(speech, "<think>So.</think>Yes")["said"] == "<think>So.</think>Yes"
