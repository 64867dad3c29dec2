"""SentencePiece BPE by itself: the order of merges, bytes and unknown characters, the space in front, odd files."""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.errors import BadModelFile
from engine.gguf.reader import read_gguf
from engine.text import Text, open_text
from engine.tokenizer.spm import SpmEncoder
from engine.tokenizer.stream import TextStream
from engine.tokenizer.vocab import Vocab
from tests.engine.test_text import RUNS
from tests.tiny import spm_keys, tiny_llama

Token = tuple[str, float, int]
BYTES: list[Token] = [(f"<0x{b:02X}>", 0.0, 6) for b in range(256)]


def keys(tokens: Sequence[Token], **more: object) -> dict[str, Any]:
    texts, _, kinds = zip(*tokens, strict=True)
    found = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": list(texts)}
    found |= {"tokenizer.ggml.token_type": list(kinds), "tokenizer.ggml.add_space_prefix": False}
    return found | {f"tokenizer.ggml.{name}": value for name, value in more.items()}


def pieces(text: str, tokens: Sequence[Token], parse_special: bool = False, **more: object) -> list[str]:
    vocab = Vocab(keys(tokens, **more))
    ids = SpmEncoder(vocab, [score for _, score, _ in tokens]).encode(text, parse_special)
    return [vocab.tokens[i] for i in ids]


def plain(scores: Mapping[str, float]) -> list[Token]:
    return [(token, score, 1) for token, score in scores.items()]


def opened(folder: Path, **metadata: Any) -> Text:
    found = spm_keys(400) | {f"tokenizer.ggml.{name}": value for name, value in metadata.items()}
    return open_text(read_gguf(tiny_llama(folder / "t.gguf", n_vocab=400, **found)))


@pytest.mark.parametrize(
    ("scores", "text", "expected"),
    [
        ({"a": 0, "b": 0, "c": 0, "ab": -2, "bc": -1}, "abc", ["a", "bc"]),  # the best score, not the leftmost
        ({"a": 0, "b": 0, "c": 0, "ab": -1, "bc": -1}, "abc", ["ab", "c"]),  # the leftmost of two alike
        ({"a": 0, "aa": -1}, "aaaaa", ["aa", "aa", "a"]),
        ({"a": 0, "aa": -1, "aaa": 5}, "aaaaa", ["aaa", "aa"]),  # a better one found on the way comes first
        ({"a": 0, "b": 0, "abab": 9}, "abab", ["a", "b", "a", "b"]),  # no way leads there
        ({"a": 0, "b": 0, "ab": -3e38, "ba": float("-inf")}, "ab", ["ab"]),
        ({"▁": 0, "a": 0, "▁a": -1, "a▁": 3}, "a a", ["a▁", "a"]),  # a token that ends with a space
        ({"▁": 0, "a": 0, "▁a": -1, "▁▁": -2}, "a   a", ["a", "▁▁", "▁a"]),  # white space is kept
    ],
)
def test_the_best_score_is_merged_first(scores: dict[str, float], text: str, expected: list[str]) -> None:
    assert pieces(text, plain(scores)) == expected


def slow(text: str, tokens: Sequence[Token]) -> list[str]:
    """The definition: look at all neighbours, merge the best, begin again."""
    scores = {token: score for token, score, _ in tokens}
    parts = list(text.replace(" ", "▁"))
    while True:
        found = [(-scores[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in scores]
        if not found:
            return parts
        i = min(found)[1]
        parts[i : i + 2] = ["".join(parts[i : i + 2])]


@pytest.mark.parametrize("seed", range(40))
def test_any_vocabulary_merges_as_the_definition_says(seed: int) -> None:
    rng = random.Random(seed)
    letters = "ab▁c"[: rng.randint(2, 4)]
    tokens = dict.fromkeys(letters, 0.0)
    for _ in range(rng.randint(3, 60)):
        tokens["".join(rng.choices(list(tokens), k=2))] = float(rng.randint(-9, 9))
    for _ in range(30):
        text = "".join(rng.choices(letters, k=rng.randint(0, 60)))
        assert pieces(text, plain(tokens)) == slow(text, plain(tokens))


def test_characters_without_a_token_become_their_bytes() -> None:
    assert pieces("aé\n", [*plain({"a": 0}), *BYTES]) == ["a", "<0xC3>", "<0xA9>", "<0x0A>"]


def test_characters_without_token_and_bytes_become_one_unknown_token() -> None:
    tokens: list[Token] = [("<unk>", 0, 2), *plain({"a": 0})]
    assert pieces("aéèa你", tokens) == ["a", "<unk>", "a", "<unk>"]
    assert pieces("aéèa你", tokens, unknown_token_id=0xFFFFFFFF) == ["a", "a"]


def test_an_unused_token_is_taken_apart_again() -> None:
    """A restricted vocabulary keeps such tokens only as steps to longer ones; the model never saw them."""
    tokens = [*plain({"a": 0, "b": 0, "c": 0, "abc": -2}), ("ab", -1.0, 5)]
    assert pieces("abc", tokens) == ["abc"]
    assert pieces("abab", tokens) == ["a", "b", "a", "b"]
    assert pieces("ab", [("a", 0, 5), *tokens[1:], *BYTES]) == ["<0x61>", "b"]


def test_no_spelling_of_a_user_makes_a_marker() -> None:
    """With the steps of "<s>" in the vocabulary, plain merging would reach the begin token."""
    tokens: list[Token] = [("<s>", 0, 3), *plain({"<": 0, "s": 0, ">": 0, "<s": -1}), ("s>", 0, 6), *BYTES]
    assert pieces("<s>", tokens, False) == ["<s", ">"]
    assert pieces("<s>", tokens, True) == ["<s>"]
    assert pieces("<0x0A>", tokens)[1] != "<0x0A>"


def test_a_space_comes_first_and_after_markers_and_decoding_takes_it_away(tmp_path: Path) -> None:
    ours = opened(tmp_path)
    ids = ours.encode("the bird</s>the", True, True)
    assert [ours.piece(i) for i in ids][:2] == ["<s>", " the"] and ours.piece(ids[-1]) == " the"
    assert ours.decode(ids) == "the bird the"  # no marker is shown, so the words must not run together
    assert ours.decode(ids, special=True) == "<s>the bird</s>the"
    assert ours.decode(ours.encode("  the  ", True, True)) == "  the  "
    without = opened(tmp_path, add_space_prefix=False)
    assert without.piece(without.encode("the", False, True)[0]) != " the"
    assert without.decode(without.encode(" the", True, True)) == " the"


@pytest.mark.parametrize(
    ("token", "kind", "expected"),
    [
        ("▁the", 1, b" the"),
        ("▁▁", 1, b"  "),
        ("a▁b", 0, b"a b"),
        ("Ġ", 1, "Ġ".encode()),  # no byte alphabet here
        ("▁x", 4, "▁x".encode()),  # user-defined: the text itself
        ("</s▁>", 3, "</s▁>".encode()),
        ("<0x0A>", 6, b"\n"),
        ("<0x0A>", 1, b"<0x0A>"),
        ("▁pad", 5, b""),
        ("a\udcff", 1, b"a\xff"),
    ],
)
def test_bytes_of_a_token(token: str, kind: int, expected: bytes) -> None:
    assert Vocab(keys([("x", 0, 1), (token, 0, kind)])).bytes_of(1) == expected


def test_an_answer_goes_on_where_its_prompt_ends(tmp_path: Path) -> None:
    """The space that a first word brings belongs to the answer, unless the prompt ends with a marker."""
    ours = opened(tmp_path)
    rng = random.Random(6)
    for text in ("The quick bird sees the flower", "the</s>the bird", "   a  b", "é 你 😀 bird", "</s> the"):
        ids = ours.encode(text, True, True)
        for _ in range(20):
            cut = rng.randint(1, len(ids))
            stream = TextStream(ours.vocab, skip_special=False, after=ids[cut - 1])
            answer = "".join(map(stream.push, ids[cut:])) + stream.finish()
            whole = ours.vocab.decode(ids, special=True)
            assert whole == ("<s>" + text).encode()
            read = len(ours.vocab.decode(ids[:cut], special=True))
            assert answer == whole[read:].decode("utf-8", "replace")
    assert "".join(map(TextStream(ours.vocab).push, ours.encode("the bird", False, True))) == "the bird"


def test_ids_that_files_do_not_name_are_those_of_sentencepiece(tmp_path: Path) -> None:
    vocab = opened(tmp_path).vocab
    assert (vocab.unk_id, vocab.bos_id, vocab.eos_id, vocab.begin_id, vocab.end_id) == (0, 1, 2, 1, None)
    assert vocab.eog_ids == {2}
    changed = opened(tmp_path, bos_token_id=5, add_bos_token=False, add_eos_token=True)
    assert changed.encode("", True, True) == [2] and changed.vocab.bos_id == 5
    assert Vocab(keys(plain({"a": 0}))).bos_id is None


def test_a_prompt_that_brings_the_begin_token_gets_no_second(tmp_path: Path) -> None:
    ours = opened(tmp_path)
    assert ours.encode("<s>the", True, True) == ours.encode("the", True, True)
    assert ours.encode("<s>the", True, False).count(1) == 1
    assert ours.encode("", True, True) == [1]


def test_phi_3_markers_take_the_white_space_after_them(tmp_path: Path) -> None:
    tokens = list(spm_keys(400)["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    kinds = list(spm_keys(400)["tokenizer.ggml.token_type"])  # type: ignore[arg-type]
    tokens[-1], kinds[-1] = "<|user|>", 3
    found = spm_keys(400) | {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    for name, swallowed in (("Phi-3 mini", True), ("tiny", False)):
        path = tiny_llama(tmp_path / "p.gguf", n_vocab=400, **(found | {"general.name": name}))
        ours = open_text(read_gguf(path))
        same = ours.encode("<|user|>\n the", False, True) == ours.encode("<|user|>the", False, True)
        assert same == swallowed
        assert ours.encode("<s> the", False, True) != ours.encode("<s>the", False, True)


@pytest.mark.parametrize(
    ("scores", "kind", "words"),
    [
        (None, None, "scores is missing"),
        ([0.0] * 399, "array[float32]", "399 entries"),
        ([0.0] * 401, "array[float32]", "401 entries"),
        ([float("nan")] * 400, "array[float32]", "no number"),
        (["x"] * 400, "array[string]", "not a list of numbers"),
        (7, "uint32", "not a list of numbers"),
    ],
)
def test_scores_that_cannot_be_are_refused(scores: object, kind: str | None, words: str, tmp_path: Path) -> None:
    gguf = read_gguf(tiny_llama(tmp_path / "t.gguf", n_vocab=400, **spm_keys(400)))
    key = "tokenizer.ggml.scores"
    changed: Any = {**gguf.metadata, key: scores}
    if scores is None:
        del changed[key]
    with pytest.raises(BadModelFile, match=words):
        open_text(replace(gguf, metadata=changed, kinds={**gguf.kinds, key: str(kind)}))


def test_whole_numbers_are_scores_too(tmp_path: Path) -> None:
    gguf = read_gguf(tiny_llama(tmp_path / "t.gguf", n_vocab=400, **spm_keys(400)))
    key = "tokenizer.ggml.scores"
    whole: Any = {**gguf.metadata, key: [int(score) for score in gguf.metadata[key]]}  # type: ignore[union-attr, arg-type, misc]
    changed = open_text(replace(gguf, metadata=whole, kinds={**gguf.kinds, key: "array[int32]"}))
    text = "The bird that sings in the morning"
    assert changed.encode(text, True, True) == open_text(gguf).encode(text, True, True)


def test_a_flag_that_is_no_flag_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match="add_space_prefix"):
        opened(tmp_path, add_space_prefix="yes")


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("prefix", [True, False])
def test_long_runs_take_time_in_line_with_their_length(tmp_path: Path, kind: str, prefix: bool) -> None:
    """Without spaces a megabyte is one word; looking for the best neighbour again and again takes hours."""
    ours = opened(tmp_path, add_space_prefix=prefix)
    given = (RUNS[kind] * 300_000)[:300_000]
    started = time.process_time()
    ids = ours.encode(given, False, True)
    assert time.process_time() - started < 20
    assert ours.decode(ids, special=True) == given


def test_random_texts_survive(tmp_path: Path) -> None:
    ours = opened(tmp_path)
    rng = random.Random(9)
    for _ in range(200):
        given = "".join(chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)])) for _ in range(40))
        assert ours.decode(ours.encode(given, False, False)) == given.replace("▁", " ")
    assert ours.decode(ours.encode("a\ud800b", False, False)) == "a\ufffdb"
