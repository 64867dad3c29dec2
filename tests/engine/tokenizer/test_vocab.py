"""The vocabulary of a file: bytes behind ids, which ids are special or end an answer, and files that contradict."""

from typing import Any

import pytest

from engine.errors import BadModelFile, ColibriError, InvalidParameter, UnsupportedModel
from engine.tokenizer.alphabet import CHAR_OF_BYTE, spoken, written
from engine.tokenizer.vocab import Vocab
from tests.tiny import byte_alphabet


def keys(tokens: list[str], kinds: list[int] | None = None, **more: object) -> dict[str, Any]:
    found: dict[str, Any] = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": tokens}
    if kinds is not None:
        found["tokenizer.ggml.token_type"] = kinds
    return found | {f"tokenizer.ggml.{name}": value for name, value in more.items()}


def endings(*tokens: str, **more: object) -> set[str]:
    vocab = Vocab(keys(list(tokens), **more))
    return {tokens[i] for i in vocab.eog_ids}


def test_the_alphabet_is_the_one_of_gpt_2() -> None:
    assert byte_alphabet() == CHAR_OF_BYTE
    assert written(bytes(range(256))) == "".join(CHAR_OF_BYTE[b] for b in range(256))
    assert spoken(written(bytes(range(256)))) == bytes(range(256))
    assert CHAR_OF_BYTE[0x20] == "Ġ" and CHAR_OF_BYTE[0x0A] == "Ċ" and CHAR_OF_BYTE[0xAD] == "Ń"


@pytest.mark.parametrize(
    ("token", "kind", "expected"),
    [
        ("Ġworld", 1, b" world"),
        ("ä½ł", 1, "你".encode()),
        ("<|im_end|>", 3, b"<|im_end|>"),
        ("<|你|>", 3, "<|你|>".encode()),
        ("  ", 4, b"  "),
        ("Ġ", 4, "Ġ".encode()),  # user-defined: the text itself, no alphabet
        ("[PAD7]", 5, b""),
        ("<0x0A>", 6, b"\n"),
        ("<0xZZ>", 6, b"<0xZZ>"),
        ("你", 1, "你".encode()),  # not in the alphabet at all
        ("Ġ你", 1, "Ġ你".encode()),
        ("a\udcff", 1, b"a\xff"),  # bytes that are no UTF-8, as the reader hands them on
    ],
)
def test_bytes_of_a_token(token: str, kind: int, expected: bytes) -> None:
    assert Vocab(keys(["x", token], [1, kind])).bytes_of(1) == expected


def test_special_and_control() -> None:
    vocab = Vocab(keys(["a", "<unk>", "<|c|>", "user"], [1, 2, 3, 4]))
    assert [vocab.is_special(i) for i in range(4)] == [False, True, True, False]
    assert [vocab.is_control(i) for i in range(4)] == [False, False, True, False]
    assert vocab.decode([0, 1, 2, 3]) == b"auser"
    assert vocab.decode([0, 1, 2, 3], special=True) == b"a<unk><|c|>user"


@pytest.mark.parametrize("token_id", [-1, 1, 1 << 40])
def test_an_id_outside_the_vocabulary_is_refused(token_id: int) -> None:
    vocab = Vocab(keys(["a"]))
    for ask in (vocab.bytes_of, vocab.is_special, vocab.is_control):
        with pytest.raises(InvalidParameter, match="outside the vocabulary"):
            ask(token_id)


def test_an_answer_ends_at_the_ids_of_the_file_and_at_known_names() -> None:
    assert endings("a", "b", "c", "d", eos_token_id=1, eot_token_id=2, eom_token_id=3) == {"b", "c", "d"}
    names = ["<|im_end|>", "<|eot_id|>", "<|end|>", "<|endoftext|>", "<end_of_turn>", "</s>", "<|eom_id|>"]
    assert endings("a", *names) == set(names)
    assert endings("a", "<|im_start|>", "<|fim_prefix|>") == set()
    assert endings("a", "<|fim_pad|>", "<|file_sep|>", "<|repo_name|>", "<REPO>") == {
        "<|fim_pad|>", "<|file_sep|>", "<|repo_name|>"
    }  # fmt: skip


def test_an_end_marker_that_the_file_calls_text_is_a_control_token() -> None:
    """Some conversions list <|im_end|> as a normal token; it would then be printed and never end anything."""
    vocab = Vocab(keys(["a", "<|im_end|>", "<|fim_prefix|>"], [1, 1, 1]))
    assert vocab.is_control(1) and vocab.is_control(2) and vocab.eog_ids == {1}


def test_harmony_ends_messages_with_end_and_answers_with_return_or_call() -> None:
    names = ["<|return|>", "<|call|>", "<|end|>", "<|channel|>", "<|message|>", "<|start|>"]
    vocab = Vocab(keys(["a", *names], [1] + [3] * len(names)))
    assert {names[i - 1] for i in vocab.eog_ids} == {"<|return|>", "<|call|>"}
    assert [vocab.is_special(i) for i in range(1, 7)] == [True, True, False, False, False, False]


def test_where_answers_end_otherwise_html_is_text() -> None:
    vocab = Vocab(keys(["</s>", "<|tool_response>", "<turn|>"], [3, 3, 3]))
    assert vocab.eog_ids == {1, 2} and not vocab.is_special(0)
    assert Vocab(keys(["</s>", "<turn|>"], [3, 3])).eog_ids == {0, 1}


def test_begin_and_end_are_added_only_where_there_is_such_a_token() -> None:
    vocab = Vocab(keys(["a", "b"], add_bos_token=True, add_eos_token=True, bos_token_id=0xFFFFFFFF))
    assert (vocab.bos_id, vocab.begin_id, vocab.end_id) == (None, None, None)
    assert Vocab(keys(["a", "b"], bos_token_id=1), add_bos_default=True).begin_id == 1
    assert Vocab(keys(["a", "b"], bos_token_id=1, add_bos_token=False), add_bos_default=True).begin_id is None


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"tokenizer.ggml.model": None}, BadModelFile, "has no tokenizer"),
        ({"tokenizer.ggml.model": "rwkv"}, UnsupportedModel, "of kind 'rwkv'.*'gpt2' .*'bert'"),
        ({"tokenizer.ggml.model": 7}, BadModelFile, "has no tokenizer"),
        ({"tokenizer.ggml.tokens": None}, BadModelFile, "tokenizer.ggml.tokens is missing"),
        ({"tokenizer.ggml.tokens": []}, BadModelFile, "tokenizer.ggml.tokens is not"),
        ({"tokenizer.ggml.tokens": ["a", 1]}, BadModelFile, "tokenizer.ggml.tokens is not"),
        ({"tokenizer.ggml.token_type": [1]}, BadModelFile, "1 entries for 2 tokens"),
        ({"tokenizer.ggml.token_type": [1, 7]}, BadModelFile, "kinds 0 to 6"),
        ({"tokenizer.ggml.token_type": [1, -1]}, BadModelFile, "kinds 0 to 6"),
        ({"tokenizer.ggml.token_type": [1.5, 1]}, BadModelFile, "kinds 0 to 6"),
        ({"tokenizer.ggml.token_type": "11"}, BadModelFile, "no list"),
        ({"tokenizer.ggml.eos_token_id": 2}, BadModelFile, "eos_token_id is 2"),
        ({"tokenizer.ggml.eos_token_id": 2147483648}, BadModelFile, "no id of the 2 tokens"),
        ({"tokenizer.ggml.eos_token_id": -1}, BadModelFile, "eos_token_id is -1"),
        ({"tokenizer.ggml.bos_token_id": "one"}, BadModelFile, "bos_token_id is one"),
        ({"tokenizer.ggml.add_bos_token": "yes"}, BadModelFile, "not true or false"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    wrong: dict[str, Any], error: type[ColibriError], words: str
) -> None:
    metadata = {name: value for name, value in (keys(["a", "b"]) | wrong).items() if value is not None}
    with pytest.raises(error, match=words):
        Vocab(metadata)
