"""Real models' chat templates render as transformers renders them. Not here: made-up templates (test_templates)."""

import hashlib
import json
import lzma
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from appliance.known_templates import KNOWN as FAMILIES
from appliance.templates import Renderer
from engine.errors import TemplateError
from tests.chats import BOS, CHATS, EOS, NOW, Chat
from tests.llama_cpp_sources import models

VECTORS = Path(__file__).parent.parent / "vectors" / "chats.json.xz"
KNOWN: dict[str, dict[str, Any]] = json.loads(lzma.decompress(VECTORS.read_bytes()))["templates"]


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    with Renderer() as made:
        yield made


@cache
def source(name: str) -> str:
    text = (models() / "templates" / f"{name}.jinja").read_text()
    assert hashlib.sha256(text.encode()).hexdigest() == KNOWN[name]["sha256"], "another template of that name"
    return text


def shown(renderer: Renderer, name: str, chat: Chat) -> str:
    return renderer.render_now(
        source(name), chat.messages, tools=chat.tools, extra=chat.extra, now=NOW, bos_token=BOS, eos_token=EOS,
        add_generation_prompt=chat.add_generation_prompt,
    )  # fmt: skip


def test_there_are_enough_of_them() -> None:
    whole = [name for name, known in KNOWN.items() if all("text" in show for show in known["shows"].values())]
    assert len(KNOWN) >= 70 and len(whole) >= 30, f"{len(whole)} of {len(KNOWN)} render every conversation"


@pytest.mark.parametrize("name", KNOWN)
def test_a_template_renders_as_transformers_renders_it(renderer: Renderer, name: str) -> None:
    shows = KNOWN[name]["shows"]
    # Tools that a template would leave out in silence are refused.
    has_no_place = "get_weather" not in shows["tools are offered"].get("text", "get_weather")
    for title, chat in CHATS.items():
        known = shows[title]
        try:
            text = shown(renderer, name, chat)
        except TemplateError as error:
            if chat.tools and has_no_place:
                assert "no place for tools" in error.message, (title, error.message)
            else:
                assert "error" in known, (title, error.message)
                words = " ".join(known["error"].partition(": ")[2].split())
                assert words[:60] in error.message, (title, words)
            continue
        assert text == known.get("text"), title


@pytest.mark.parametrize("name", KNOWN)
def test_a_tool_of_which_only_the_name_is_known_can_be_offered(renderer: Renderer, name: str) -> None:
    """OpenAI wants no more; a third of the templates writes out description and parameters without asking."""
    shows = KNOWN[name]["shows"]["tools are offered"]
    if "get_weather" in shows.get("text", ""):
        chat = Chat(CHATS["tools are offered"].messages, [{"type": "function", "function": {"name": "now"}}])
        assert "now" in shown(renderer, name, chat)


# Templates that we wrote down ourselves, and the real one whose conversations they must render alike.
SAME = [
    ("chatml", "Qwen-Qwen2.5-7B-Instruct", ("with a system message", "several turns")),
    ("hermes", "Qwen-Qwen2.5-7B-Instruct", ("with a system message", "several turns", "tools are offered",
                                            "a tool was called")),
    ("gemma", "google-gemma-2-2b-it", ("a question", "with a system message", "several turns", "ends with an answer")),
    ("phi3", "microsoft-Phi-3.5-mini-instruct", ("a question", "with a system message", "several turns")),
    ("granite", "ibm-granite-granite-3.3-2B-Instruct", ("with a system message", "several turns")),
    ("mistral", "mistralai-Mistral-Nemo-Instruct-2407", ("a question", "thinking on", "ends with an answer")),
    ("mistral-v7", "Mistral-Small-3.2-24B-Instruct-2506", ("with a system message", "several turns")),
    ("glm4", "GLM-4.6", ("a question", "with a system message")),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "titles"), SAME)
def test_a_known_familys_template_renders_as_its_real_one(
    renderer: Renderer, ours: str, theirs: str, titles: tuple[str, ...]
) -> None:
    for title in titles:
        chat = CHATS[title]
        text = renderer.render_now(
            FAMILIES[ours].template, chat.messages, tools=chat.tools, now=NOW, bos_token=BOS, eos_token=EOS,
            add_generation_prompt=chat.add_generation_prompt,
        )  # fmt: skip
        assert text == KNOWN[theirs]["shows"][title]["text"], title


OTHERS = {
    "llama3": "<s><|start_header_id|>system<|end_header_id|>\n\nBe short.<|eot_id|><|start_header_id|>user"
              "<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nYo<|eot_id|>"
              "<|start_header_id|>user<|end_header_id|>\n\nHo<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "llama2": "<s>[INST] <<SYS>>\nBe short.\n<</SYS>>\n\nHi [/INST] Yo </s><s>[INST] Ho [/INST]",
    "mistral-v1": "<s>[INST] Be short.\n\nHi [/INST] Yo</s>[INST] Ho [/INST]",
    "phi4": "<|im_start|>system<|im_sep|>Be short.<|im_end|><|im_start|>user<|im_sep|>Hi<|im_end|><|im_start|>assistant"
            "<|im_sep|>Yo<|im_end|><|im_start|>user<|im_sep|>Ho<|im_end|><|im_start|>assistant<|im_sep|>",
    "deepseek": "<s>Be short.<｜User｜>Hi<｜Assistant｜>Yo</s><｜User｜>Ho<｜Assistant｜>",
    "tulu": "<s><|system|>\nBe short.\n<|user|>\nHi\n<|assistant|>\nYo</s>\n<|user|>\nHo\n<|assistant|>\n",
    "bitnet": "System: Be short.<|eot_id|>User: Hi<|eot_id|>Assistant: Yo<|eot_id|>User: Ho<|eot_id|>Assistant: ",
    "gpt-oss": "<|start|>developer<|message|># Instructions\n\nBe short.<|end|><|start|>user<|message|>Hi<|end|>"
               "<|start|>assistant<|channel|>final<|message|>Yo<|end|><|start|>user<|message|>Ho<|end|>"
               "<|start|>assistant",
}  # fmt: skip


def test_every_known_template_is_compared_with_something() -> None:
    assert {ours for ours, *_ in SAME} | OTHERS.keys() == FAMILIES.keys()


@pytest.mark.parametrize("name", OTHERS)
def test_a_known_familys_template_renders_as_its_card_says(renderer: Renderer, name: str) -> None:
    turns = [("system", "Be short."), ("user", "Hi"), ("assistant", "Yo"), ("user", "Ho")]
    messages = [{"role": role, "content": content} for role, content in turns]
    assert renderer.render_now(FAMILIES[name].template, messages, bos_token=BOS, eos_token=EOS) == OTHERS[name]
