"""SentencePiece's unigram model by itself: the best sum, spaces, rewritten spellings, unknown characters, odd files."""

import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tokenizers import normalizers

from engine.errors import BadModelFile
from engine.gguf.reader import read_gguf
from engine.text import Text, open_text
from engine.tokenizer.charsmap import Charsmap
from engine.tokenizer.ugm import UgmEncoder
from engine.tokenizer.vocab import Vocab
from tests.engine.test_text import RUNS
from tests.llama_cpp_sources import models
from tests.tiny import spm_keys, tiny_llama

NAMED = ("<pad>", "</s>", "<unk>", "<extra_id_0>")


def keys(scores: Mapping[str, float], **more: object) -> dict[str, Any]:
    found: dict[str, object] = {
        "model": "t5", "tokens": [*NAMED, *scores], "token_type": [3, 3, 2, 4] + [1] * len(scores),
        "scores": [0.0] * 4 + list(scores.values()), "remove_extra_whitespaces": True,
    }  # fmt: skip
    return {f"tokenizer.ggml.{name}": value for name, value in (found | more).items() if value is not None}


def pieces(text: str, scores: Mapping[str, float], charsmap: Charsmap | None = None, **more: object) -> list[str]:
    found = keys(scores, **more)
    vocab = Vocab(found)
    ids = UgmEncoder(vocab, found["tokenizer.ggml.scores"], charsmap).encode(text, parse_special=False)
    return [vocab.tokens[i] for i in ids]


def opened(folder: Path, **metadata: Any) -> Text:
    scores = {"▁": -4.0, "▁the": -1.0, "▁bird": -2.0, "s": -3.0, "é": -5.0}
    found: dict[str, Any] = dict.fromkeys(spm_keys(400)) | keys(scores)
    found |= {f"tokenizer.ggml.{name}": value for name, value in metadata.items()}
    return open_text(read_gguf(tiny_llama(folder / "t.gguf", n_vocab=400, **found)))


def trie(spellings: Mapping[bytes, bytes]) -> bytes:
    """A table with these spellings; each node's children lie in a block of 256 units of their own."""
    nodes: dict[bytes, int] = {b"": 0}
    for key in sorted(spellings):
        for n in range(1, len(key) + 1):
            nodes.setdefault(key[:n], len(nodes))
    blocks = {node: 256 * (i + 1) for node, i in nodes.items()}
    units = [0] * (256 * (len(nodes) + 1))
    texts = b""
    for node in nodes:
        at = blocks[node[:-1]] ^ node[-1] if node else 0
        units[at] = (at ^ blocks[node]) << 10 | (node in spellings) << 8 | (node[-1] if node else 0)
        if node in spellings:
            units[blocks[node]] = 1 << 31 | len(texts)
            texts += spellings[node] + b"\0"
    data = b"".join(unit.to_bytes(4, "little") for unit in units)
    return len(data).to_bytes(4, "little") + data + texts


@pytest.mark.parametrize(
    ("scores", "text", "expected"),
    [
        ({"▁ab": -3, "▁a": -1, "b": -1, "▁": -9}, "ab", ["▁a", "b"]),  # -2 is more than -3
        ({"▁ab": -3, "▁a": -2, "b": -2, "▁": -9}, "ab", ["▁ab"]),
        ({"▁ab": -3, "▁a": -2, "b": -1, "▁": -9}, "ab", ["▁ab"]),  # alike: what begins earlier stays
        ({"▁ab": -2, "▁a": -1, "bcd": -1, "b": -1, "c": -1, "d": -1}, "abcd", ["▁a", "bcd"]),  # not the longest first
        ({"▁": -1, "a": -1}, "a??a", ["▁", "a", "<unk>", "a"]),  # a row of unknown characters is one
        ({"a": -1, "b": -1}, "?? ?a", ["<unk>", "a"]),  # and spaces are characters too
        ({"▁a": -1, "a▁b": -1, "▁": -2, "b": -2, "a": -2}, "a b", ["▁", "a▁b"]),  # across two words
        ({"▁a": -1, "▁b": -1}, "  a \t b  ", ["▁a", "<unk>", "▁b"]),  # a tab is no space here
        ({"▁a": -1}, "", []),
        ({"▁a": -1}, "   ", []),
    ],
)
def test_the_best_sum_wins(scores: dict[str, float], text: str, expected: list[str]) -> None:
    assert pieces(text, scores) == expected


def _ways(word: str, scores: Mapping[str, float]) -> Iterator[tuple[float, list[str]]]:
    if not word:
        yield 0.0, []
    for size in range(1, len(word) + 1):
        if word[:size] in scores:
            for rest, tokens in _ways(word[size:], scores):
                yield scores[word[:size]] + rest, [word[:size], *tokens]


@pytest.mark.parametrize("seed", range(20))
def test_no_other_way_to_spell_a_text_has_a_better_sum(seed: int) -> None:
    rng = random.Random(seed)
    scores = {letter: -rng.randint(40, 90) / 8 for letter in "ab▁"}
    scores |= {"".join(rng.choices("ab▁", k=rng.randint(2, 4))): -rng.randint(1, 99) / 8 for _ in range(12)}
    for _ in range(20):
        text = "a" + "".join(rng.choices("ab ", k=8)) + "b"
        written = "".join("▁" + word for word in text.split())
        best = max(total for total, _ in _ways(written, scores))
        found = pieces(text, scores)
        assert "".join(found) == written and sum(scores[token] for token in found) == best


@pytest.mark.parametrize(
    ("prefix", "merge", "expected"),
    [
        (True, True, ["▁", "a", "▁", "b"]),
        (False, True, ["▁", "a", "▁", "b"]),  # merging writes one before each word, the first as well
        (True, False, ["▁"] * 3 + ["a", "▁", "▁", "b", "▁"]),
        (False, False, ["▁"] * 2 + ["a", "▁", "▁", "b", "▁"]),
    ],
)
def test_spaces_are_put_in_order_as_the_file_says(prefix: bool, merge: bool, expected: list[str]) -> None:
    scores = {"▁": -1.0, "a": -1.0, "b": -1.0}
    assert pieces("  a  b ", scores, add_space_prefix=prefix, remove_extra_whitespaces=merge) == expected


def test_a_text_ends_with_its_marker_once_and_reads_back(tmp_path: Path) -> None:
    ours = opened(tmp_path)
    ids = ours.encode("the birds", True, True)
    assert ids[-1] == 1 and ids == ours.encode("the birds</s>", True, True)
    assert ours.decode(ids) == "the birds"
    assert ours.encode("<extra_id_0>", False, False) == [3]  # user-defined: text by itself
    assert 1 not in ours.encode("</s>", False, False)


def test_spellings_are_rewritten_longest_first() -> None:
    table = Charsmap(trie({b"A": b"a", b"AB": b"x", "é".encode(): "e\u0301".encode(), b"\t": b" ", b"-": b""}))
    assert table.rewritten("ABA-Aé\tC") == "xaae\u0301 C"
    assert table.rewritten("A") + table.rewritten("AB") + table.rewritten("ABB") == "axxB"  # none spoils another
    assert pieces("A\t\t-A", {"▁a": -1.0}, table) == ["▁a", "▁a"]


def test_every_character_of_a_real_table_is_rewritten_as_its_own_library_does() -> None:
    key = "tokenizer.ggml.precompiled_charsmap"
    table = bytes(read_gguf(models() / "ggml-vocab-nomic-bert-moe.gguf").metadata[key])  # type: ignore[arg-type]
    ours, theirs = Charsmap(table), normalizers.Precompiled(table)
    for first, last in ((1, 0x3400), (0xA000, 0xA700), (0xAC00, 0xAD00), (0xF900, 0xFFFE), (0x1D400, 0x1D800)):
        for char in map(chr, range(first, last)):
            assert ours.rewritten(char) == theirs.normalize_str(char), hex(ord(char))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (b"", "0 bytes"),
        (b"\4\0\0", "3 bytes"),
        ((1024).to_bytes(4, "little") + bytes(1024), "1,024 of them for its trie"),
        ((1 << 31).to_bytes(4, "little") + bytes(1024), "2,147,483,648 of them"),
        ((6).to_bytes(4, "little") + bytes(1024), "6 of them"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(table: bytes, words: str) -> None:
    with pytest.raises(BadModelFile, match=words):
        Charsmap(table)


def test_a_table_that_points_outside_itself_is_refused_when_met() -> None:
    good = trie({b"A": b"a"})
    with pytest.raises(BadModelFile, match="points to unit"):
        Charsmap((4).to_bytes(4, "little") + (1 << 20).to_bytes(4, "little") + b"x\0").rewritten("A")
    with pytest.raises(BadModelFile, match="does not end"):
        Charsmap(good[:-1]).rewritten("A")
    rng = random.Random(3)
    for _ in range(300):
        broken = bytearray(good)
        for _ in range(40):
            broken[rng.randrange(4, len(broken))] = rng.randrange(256)
        try:
            Charsmap(bytes(broken)).rewritten("ABAé\x00 A")
        except BadModelFile as error:
            assert "damaged" in str(error)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scores": None}, "scores is missing"),
        ({"precompiled_charsmap": "abc"}, "is of type string, not bytes"),
        ({"precompiled_charsmap": [1, 2, 3]}, "not bytes"),
        ({"remove_extra_whitespaces": 1}, "not true or false"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match=words):
        opened(tmp_path, **changes)


@pytest.mark.parametrize("kind", RUNS)
def test_long_runs_take_time_in_line_with_their_length(tmp_path: Path, kind: str) -> None:
    ours = opened(tmp_path)
    started = time.process_time()
    ours.encode((RUNS[kind] * 300_000)[:300_000], False, True)
    assert time.process_time() - started < 20
