"""Files of kind 'llama' as their owner meets them: every command answers from a good one and refuses a bad one."""

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.appliance.api.test_serve import serving
from tests.appliance.cli.shell import Done, colibri, inside
from tests.tiny import CHATML, spm_keys, tiny_llama

# What a converter may leave out or write otherwise, and how a good file then differs.
GOOD: dict[str, dict[str, Any]] = {
    "bare": {},
    "named": {
        "tokenizer.ggml.pre": "default", "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.add_bos_token": True,
    },
    "no_prefix": {"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": False},
    "mixed": {"quants": {"token_embd.weight": "Q8_0", "ffn_down.weight": "Q4_1", "output.weight": "F16"}},
    "kv_array": {"llama.attention.head_count_kv": [2, 2]},
}  # fmt: skip
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "scores_short": ({"tokenizer.ggml.scores": [0.0] * 10}, "tokenizer.ggml.scores has 10 entries"),
    "scores_nan": ({"tokenizer.ggml.scores": [float("nan")] * 400}, "tokenizer.ggml.scores holds"),
    "no_scores": ({"tokenizer.ggml.scores": None}, "tokenizer.ggml.scores is missing"),
    "no_tokens": ({"tokenizer.ggml.tokens": None}, "tokenizer.ggml.tokens"),
    "kinds_short": ({"tokenizer.ggml.token_type": [1] * 10}, "tokenizer.ggml.token_type has 10 entries"),
    "eos_outside": ({"tokenizer.ggml.eos_token_id": 1 << 31}, "tokenizer.ggml.eos_token_id is 2147483648"),
    "unknown_outside": ({"tokenizer.ggml.unknown_token_id": 400}, "tokenizer.ggml.unknown_token_id is 400"),
    "prefix_number": ({"tokenizer.ggml.add_space_prefix": 1}, "add_space_prefix is '1', not true or false"),
    "other_kind": ({"tokenizer.ggml.model": "rwkv"}, "of kind 'rwkv'"),
}


def made(folder: Path, name: str, changes: dict[str, Any]) -> str:
    return str(tiny_llama(folder / f"{name}.gguf", n_vocab=400, **(spm_keys(400) | changes)))


def answered(*words: str) -> Any:
    done = inside(*words, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_file_answers_every_command(name: str, tmp_path: Path) -> None:
    model = made(tmp_path, name, GOOD[name])
    assert inside("inspect", "-m", model).code == 0
    found = answered("tokenize", "-m", model, "-p", "the  bird\né")
    assert "".join(found["pieces"][-2:]) != "é" and found["pieces"][-3] == "\n"  # é has only its bytes
    ids = " ".join(map(str, found["tokens"]))
    back = answered("tokenize", "-m", model, "--ids-to-text", "-p", ids)["text"]
    assert back == "the  bird\né" if name == "no_prefix" else back == "<s>the  bird\né"
    run = answered("run", "-m", model, "--raw", "-p", "the  bird\né", "-n", "4", "--temp", "0", "-t", "1")
    assert run["prompt_tokens"] == found["tokens"] and 1 <= len(run["tokens"]) <= 4
    logits = answered("logits", "-m", model, "--tokens", ids.replace(" ", ","), "--top", "2")
    assert [row["token"] for row in logits["positions"]] == found["tokens"]
    assert logits["positions"][-1]["top"][0][0] == run["tokens"][0]


def test_without_a_template_only_plain_text_is_answered(tmp_path: Path) -> None:
    refused = inside("run", "-m", made(tmp_path, "bare", {}), "-p", "the", "-n", "1")
    assert refused.code != 0 and "no chat template" in refused.err and "--raw" in refused.err
    templated = made(tmp_path, "templated", {"tokenizer.chat_template": "{{ bos_token }}" + CHATML})
    ids = answered("run", "-m", templated, "-p", "the", "-n", "1")["prompt_tokens"]
    assert ids.count(1) == 1 and ids[0] == 1


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    changes, words = BAD[name]
    model = made(tmp_path, name, changes)
    for command in (("run", "--raw", "-p", "hi", "-n", "4"), ("tokenize", "-p", "hi")):
        done: Done = inside(*command, "-m", model)
        assert done.code == 3 and words in done.err and done.out == "", done.err
        assert len([line for line in done.err.splitlines() if line.startswith("colibri: error:")]) == 1
    assert inside("inspect", "-m", model).code in (0, 3)


def test_a_bad_file_ends_a_server_before_it_listens(tmp_path: Path) -> None:
    changes, words = BAD["scores_nan"]
    done = colibri("serve", "-m", made(tmp_path, "bad", changes), "--port", "0", "--data-dir", str(tmp_path / "data"))
    assert done.code == 3 and words in done.err and "listening" not in done.err


def test_a_server_completes_plain_text_and_refuses_chat(tmp_path: Path) -> None:
    with serving(tmp_path, Path(made(tmp_path, "bare", {})), "--alias", "tiny") as server:
        client = server.client()
        given: dict[str, Any] = {
            "model": "tiny",
            "max_tokens": 12,
            "temperature": 0,
            "extra_body": {"ignore_eos": True},
        }
        whole = client.completions.create(prompt="the bird", **given)
        streamed = client.completions.create(prompt="the bird", stream=True, **given)
        text = "".join(chunk.choices[0].text for chunk in streamed)
        assert whole.usage is not None and whole.usage.completion_tokens == 12
        assert text == whole.choices[0].text != ""
        with pytest.raises(openai.BadRequestError, match="no chat template"):
            client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hi"}])
