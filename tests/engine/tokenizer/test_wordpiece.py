"""WordPiece by itself: plain words, the longest tokens from the left, the markers at both ends, odd files."""

import time
from pathlib import Path
from typing import Any

import pytest

from engine.errors import BadModelFile
from engine.gguf.reader import read_gguf
from engine.text import Text, open_text
from tests.engine.test_text import RUNS
from tests.tiny import spm_keys, tiny_llama

MARKERS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (
    "▁un", "▁unaff", "aff", "able", "▁able", "▁a", "▁b", "a", "b", "c", "▁c", "▁cafe", "▁!", "▁,", "▁.", "▁$", "▁€",
    "▁北", "▁京", "▁i", "▁σ", "▁É", "▁Caf", "é", "e", "▁[", "▁]", "▁cls", "▁\u1112", "▁^", "▁x",
)  # fmt: skip


def opened(folder: Path, **metadata: Any) -> Text:
    tokens = [*MARKERS, *WORDS]
    found: dict[str, Any] = {
        "model": "bert", "tokens": tokens, "token_type": [3] * len(MARKERS) + [1] * len(WORDS),
        "unknown_token_id": 1, "cls_token_id": 2, "seperator_token_id": 3, "padding_token_id": 0,
    }  # fmt: skip
    keys = {f"tokenizer.ggml.{name}": value for name, value in (found | metadata).items()}
    return open_text(read_gguf(tiny_llama(folder / "t.gguf", n_vocab=400, **(dict.fromkeys(spm_keys(400)) | keys))))


def pieces(ours: Text, text: str, parse_special: bool = False) -> list[str]:
    return [ours.vocab.tokens[i] for i in ours.encode(text, False, parse_special)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unaffable", ["▁unaff", "able"]),  # the longest first, so never un|aff|able
        ("UNAFFABLE Able", ["▁unaff", "able", "▁able"]),
        ("unafq", ["[UNK]"]),  # what begins well and ends badly is one unknown word
        ("un, able.", ["▁un", "▁,", "▁able", "▁."]),
        ("Café cafe\u0301", ["▁cafe", "▁cafe"]),
        ("北京", ["▁北", "▁京"]),
        ("a北b", ["▁a", "▁北", "▁b"]),
        ("a$b €", ["▁a", "▁$", "▁b", "▁€"]),  # ASCII symbols stand alone, others are letters of a word
        ("a^b€", ["▁a", "▁^", "[UNK]"]),
        ("ab\u00adc\u200b\x01", ["▁a", "b", "c"]),
        ("a\tb\n\n  c\u3000", ["▁a", "▁b", "▁c"]),
        ("İ Σ", ["▁i", "▁σ"]),
        ("한", ["▁\u1112"]),
        ("", []),
        (" \n ", []),
        ("[CLS]", ["▁[", "▁cls", "▁]"]),  # typed by a user
        ("\ufffd", []),
    ],
)
def test_words_are_plain_and_spelt_by_the_longest_tokens(text: str, expected: list[str], tmp_path: Path) -> None:
    assert pieces(opened(tmp_path), text) == expected


def test_a_cased_vocabulary_keeps_capitals_and_accents(tmp_path: Path) -> None:
    cased = opened(tmp_path, **{"normalizer.lowercase": False})
    assert pieces(cased, "Café É") == ["▁Caf", "é", "▁É"]
    both = opened(tmp_path, **{"normalizer.lowercase": False, "normalizer.strip_accents": True})
    assert pieces(both, "Cafe\u0301") == ["▁Caf", "e"]
    with pytest.raises(BadModelFile, match="not true or false"):
        opened(tmp_path, **{"normalizer.lowercase": 1})


def test_a_text_stands_between_two_markers_once(tmp_path: Path) -> None:
    ours = opened(tmp_path)
    assert ours.encode("a", True, True)[::2] == [2, 3]
    assert ours.encode("[CLS]a[SEP]", True, True) == ours.encode("a", True, True)
    assert ours.encode("", True, True) == [2, 3]
    assert pieces(ours, "a [MASK] b", parse_special=True) == ["▁a", "[MASK]", "▁b"]
    assert ours.decode(ours.encode("un, able", True, True)) == "un , able"
    assert ours.decode(ours.encode("un, able", True, True), special=True) == "[CLS]un , able[SEP]"


def test_ids_that_files_do_not_name_are_those_of_bert(tmp_path: Path) -> None:
    tokens = [f"[unused{i}]" for i in range(104)] + ["▁a"]
    ours = opened(
        tmp_path, tokens=tokens, token_type=[1] * 105, cls_token_id=None, seperator_token_id=None, unknown_token_id=None
    )
    assert ours.encode("a zz", True, False) == [101, 104, 100, 102]


def test_a_token_of_absurd_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match="one has 9,999 characters"):
        opened(tmp_path, tokens=[*MARKERS, *WORDS[:-1], "x" * 9999]).prepare()


@pytest.mark.parametrize("kind", RUNS)
def test_long_runs_take_time_in_line_with_their_length(tmp_path: Path, kind: str) -> None:
    ours = opened(tmp_path)
    started = time.process_time()
    ours.encode((RUNS[kind] * 300_000)[:300_000], False, True)
    assert time.process_time() - started < 20
