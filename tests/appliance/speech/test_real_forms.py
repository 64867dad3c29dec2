"""What a real model's template writes for a call is read back as that call: the form is the family's own."""

import json
from collections.abc import Iterator
from itertools import takewhile

import pytest

from appliance.speech.bare import Bare
from appliance.speech.speech import form_of, is_harmony
from appliance.speech.toolset import ToolSet, listen
from appliance.templates import Renderer
from tests.appliance.speech.answers import read
from tests.chats import BOS, CHATS, EOS, NOW, TOOLS
from tests.llama_cpp_sources import models

QUESTION, CALLED = CHATS["a question"].messages, CHATS["two tools were called"].messages[:2]
SILENT = ("ibm-granite-granite-3.3-2B-Instruct",)
"""Shows tools and never an earlier call."""
ONE_CALL = ("meta-llama", "openai-gpt-oss")
"""Families that call one tool at a time."""


def known() -> list[str]:
    sources = {path.stem: path.read_text() for path in sorted((models() / "templates").glob("*.jinja"))}
    return [name for name, text in sources.items() if (form_of(text) or is_harmony(text)) and name not in SILENT]


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    with Renderer() as made:
        yield made


def test_there_are_enough_of_them() -> None:
    assert len(known()) >= 30


@pytest.mark.parametrize("name", known())
def test_a_templates_own_calls_are_read_back(renderer: Renderer, name: str) -> None:
    source = (models() / "templates" / f"{name}.jinja").read_text()
    calls = CALLED[1]["tool_calls"][: 1 if name.startswith(ONE_CALL) else 2]

    tools = None if "deepseek" in name else TOOLS  # these show calls and have no place for tools

    def shown(messages: list[dict[str, object]], with_header: bool = False) -> str:
        return renderer.render_now(source, messages, tools=tools, now=NOW, bos_token=BOS, eos_token=EOS,
                                   add_generation_prompt=with_header)  # fmt: skip

    whole = shown([*QUESTION, {**CALLED[1], "tool_calls": calls}])
    # Only a bare object has to be the first thing; before other forms may stand the header of the turn.
    prompt = shown(QUESTION, with_header=form_of(source) is Bare)
    answer = whole[sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, whole, strict=False))) :]
    found = read(listen(source, prompt, ToolSet(TOOLS))[1], [answer])
    wanted = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]
    assert [(name, json.loads(arguments)) for name, arguments in found["calls"]] == wanted, answer
