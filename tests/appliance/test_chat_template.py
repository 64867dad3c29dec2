"""Which chat template counts, and what is said where there is none. Not here: how templates render."""

from pathlib import Path
from typing import Any

import pytest

from appliance.chat_template import choose, required
from appliance.known_templates import KNOWN, recognised
from appliance.machine.host import read_machine
from appliance.settings import Settings
from appliance.swaps.prepare import prepare
from engine.errors import RequestError, TemplateError, UsageError
from engine.gguf.reader import read_gguf
from engine.text import Text, open_text
from tests.tiny import CHATML, tiny_llama


def opened(folder: Path, **keys: Any) -> Text:
    return open_text(read_gguf(tiny_llama(folder / "tiny.gguf", **keys)))


def test_the_files_own_counts_unless_the_operator_gives_another(tmp_path: Path) -> None:
    text = opened(tmp_path)
    assert choose(text, Settings(), "llama") is None and text.chat_template == CHATML
    said = choose(text, Settings(chat_template="llama3"), "llama")
    assert "llama3" in str(said) and text.chat_template == KNOWN["llama3"].template
    choose(text, Settings(chat_template="{{ messages }}"), "llama")
    assert text.chat_template == "{{ messages }}"
    (tmp_path / "own.jinja").write_text("{{ 'ä' }}")
    assert "own.jinja" in str(choose(text, Settings(chat_template_file=tmp_path / "own.jinja"), "llama"))
    assert text.chat_template == "{{ 'ä' }}"


def test_a_template_for_tools_is_taken_where_a_file_has_one(tmp_path: Path) -> None:
    text = opened(tmp_path, **{"tokenizer.chat_template.tool_use": "{{ tools }}"})
    assert (required(text), required(text, has_tools=True)) == (CHATML, "{{ tools }}")
    choose(text, Settings(chat_template="hermes"), "llama")
    assert required(text, has_tools=True) == KNOWN["hermes"].template


def test_a_file_without_one_gets_its_familys_or_says_what_to_do(tmp_path: Path) -> None:
    text = opened(tmp_path, **{"tokenizer.chat_template": None})
    tokens = list(text.vocab.tokens)
    if "<|im_start|>" in tokens:
        assert "'chatml'" in str(choose(text, Settings(), "llama"))
        text.chat_template = None
        text.vocab.tokens = [token for token in tokens if token != "<|im_start|>"]
    assert "--chat-template" in str(choose(text, Settings(), "llama"))
    with pytest.raises(RequestError, match="--chat-template NAME"):
        required(text)


@pytest.mark.parametrize(
    ("architecture", "tokens", "name"),
    [
        ("llama", {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}, "llama3"),
        ("qwen2", {"<|im_start|>", "<|im_end|>", "<|endoftext|>"}, "chatml"),
        ("phi3", {"<|im_start|>", "<|im_end|>", "<|im_sep|>"}, "phi4"),
        ("gemma3", {"<start_of_turn>", "<end_of_turn>"}, "gemma"),
        ("olmo2", {"<|im_start|>", "<|im_end|>"}, "tulu"),
        ("bitnet-b1.58", {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}, "bitnet"),
        ("gpt-oss", {"<|start|>", "<|channel|>", "<|message|>", "<|return|>", "<|end|>"}, "gpt-oss"),
        ("llama", {"[INST]", "[/INST]", "[SYSTEM_PROMPT]"}, "mistral-v7"),
        ("llama", {"[INST]", "[/INST]"}, "mistral"),
        ("starcoder2", {"<fim_prefix>"}, None),
        ("llama", {"<s>", "</s>"}, None),
    ],
)
def test_a_family_is_known_by_its_tokens(architecture: str, tokens: set[str], name: str | None) -> None:
    assert recognised(architecture, tokens) == name


def test_an_operators_template_that_cannot_be_rendered_is_refused_and_a_files_is_told_of(tmp_path: Path) -> None:
    broken = "{% for m in messages %}{{ m.content "
    with pytest.raises(TemplateError, match="cannot be rendered"):
        prepare(Settings(model=str(tiny_llama(tmp_path / "a.gguf")), chat_template=broken), read_machine())
    its_own = tiny_llama(tmp_path / "b.gguf", **{"tokenizer.chat_template": broken})
    assert prepare(Settings(model=str(its_own)), read_machine()).text.chat_template == broken


def test_a_setting_that_names_no_template_is_refused_when_the_model_is_prepared(tmp_path: Path) -> None:
    model = str(tiny_llama(tmp_path / "tiny.gguf"))
    (tmp_path / "bad.jinja").write_bytes(b"{{ '\xff' }}")
    (tmp_path / "long.jinja").write_text("x" * (1 << 21))
    for settings, words in (
        ({"chat_template": "lama3"}, "neither a known template"),
        ({"chat_template_file": tmp_path / "none.jinja"}, "cannot be read"),
        ({"chat_template_file": tmp_path / "bad.jinja"}, "not UTF-8"),
        ({"chat_template_file": tmp_path / "long.jinja"}, "more than"),
        ({"chat_template": "hermes", "chat_template_file": tmp_path / "x"}, "use one"),
    ):
        with pytest.raises(UsageError, match=words):
            prepare(Settings(model=model, **settings), read_machine())
