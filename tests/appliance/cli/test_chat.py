"""What `colibri chat` shows of an answer and keeps of it for the next turn. Not here: a real model (the engine's)."""

import pytest

from appliance.cli.chat import _print
from appliance.cli.local import End, Event, Prefill, Token
from appliance.cli.progress import Progress
from appliance.speech.toolset import listen, reader_of


def answered(template: str, prompt: str, text: str, finish: str = "stop") -> dict[str, str]:
    """The turn for the history, after the answer came letter by letter."""
    events: list[Event] = [Prefill(1, 1), *(Token(0, char, None, []) for char in text), End("", finish, {}, None)]
    turn = {"role": "assistant", "content": ""}
    _print(iter(events), turn, reader_of(listen(template, prompt, None)[1]), Progress())
    return turn


def test_thoughts_are_talk_and_the_answer_is_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    turn = answered("<think>", "assistant\n<think>\n", "Capitals.\n</think>\n\nParis.\n")
    assert turn == {"role": "assistant", "content": "Paris.\n", "reasoning_content": "Capitals."}
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("Paris.\n", "Capitals.\n\n")


def test_channels_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """gpt-oss's template refuses a history with their marks in it."""
    text = "<|channel|>analysis<|message|>Capitals.<|end|><|start|>assistant<|channel|>final<|message|>Paris."
    turn = answered("<|channel|> <|message|>", "<|start|>assistant", text)
    assert turn == {"role": "assistant", "content": "Paris.", "reasoning_content": "Capitals."}
    assert capsys.readouterr().out == "Paris."


def test_an_answer_cut_in_its_thoughts_keeps_them_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert answered("<think>", "assistant\n", "<think>I wonder", "length")["content"] == ""
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("I wonder") and "cut" in shown.err


def test_plain_answers_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert answered("chatml", "assistant\n", " a <b \n") == {"role": "assistant", "content": " a <b \n"}
    assert capsys.readouterr() == (" a <b \n", "")
