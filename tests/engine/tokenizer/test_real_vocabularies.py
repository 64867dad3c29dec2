"""Real vocabularies: ids equal those that came with the files and llama.cpp's on 2,500 lines. Not here: made ones."""

from collections.abc import Iterator

import pytest
from tokenizers import AddedToken, Tokenizer, pre_tokenizers
from tokenizers.models import BPE

from engine.errors import UnsupportedModel
from engine.gguf.reader import GgufFile, read_gguf
from engine.text import Text, open_text
from tests.engine.tokenizer.borrowed import with_weights
from tests.engine.tokenizer.corpus import LANGUAGES, lines
from tests.engine.tokenizer.llama_cpp import LlamaCpp
from tests.engine.tokenizer.test_against_llama_cpp import smollm2
from tests.llama_cpp_sources import models

WITH_IDS = (
    "bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "llama-bpe", "llama-spm",
    "mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder",
)  # fmt: skip
NAMES = (*WITH_IDS, "baichuan", "nomic-bert-moe")
SILENT = "pre-tokenizer .* is missing"
OTHERS = {"aquila": SILENT, "gpt-neox": SILENT}
SEPARATOR = "__ggml_vocab_test__\n"
LINES = lines()
Both = tuple[str, Text, LlamaCpp]


def vocabulary(name: str) -> GgufFile:
    return read_gguf(models() / f"ggml-vocab-{name}.gguf")


@pytest.fixture(scope="module", params=NAMES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    gguf = vocabulary(request.param)
    n_vocab = len(gguf.metadata["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    path = with_weights(tmp_path_factory.mktemp("v") / "v.gguf", gguf, n_vocab)
    yield request.param, open_text(read_gguf(path)), LlamaCpp(path)
    path.unlink()


def test_every_file_of_the_archive_is_compared_or_refused() -> None:
    found = {path.stem.removeprefix("ggml-vocab-") for path in models().glob("ggml-vocab-*.gguf")}
    assert found == {*NAMES, *OTHERS}
    assert {path.name.split(".")[0] for path in models().glob("*.out")} >= {f"ggml-vocab-{name}" for name in WITH_IDS}
    for name, words in OTHERS.items():
        with pytest.raises(UnsupportedModel, match=words):
            open_text(vocabulary(name))


def test_the_corpus_is_what_it_claims() -> None:
    assert len(LINES) >= 2000 and len(LANGUAGES) >= 40 and all(LINES)


def test_ids_are_those_that_came_with_the_file(both: Both) -> None:
    """The authors of the files made them with each model's own tokenizer."""
    name, ours, _ = both
    if name not in WITH_IDS:
        return
    file = models() / f"ggml-vocab-{name}.gguf"
    texts = file.with_name(f"{file.name}.inp").read_bytes().decode().split(f"\n{SEPARATOR}")
    texts = texts if texts[-1] else texts[:-1]
    ids = [[int(i) for i in line.split()] for line in file.with_name(f"{file.name}.out").read_text().splitlines()]
    assert len(texts) >= 40
    for text, expected in zip(texts, ids, strict=True):
        assert ours.encode(text, add_special=False, parse_special=False) == expected, text


def test_2500_lines_give_the_ids_of_llama_cpp(both: Both) -> None:
    _, ours, theirs = both
    vocab = ours.vocab
    # Only a name can be read in two ways.
    for parse_special, asked in ((False, LINES), (True, [line for line in LINES if "<" in line or "[" in line])):
        found = [ours.encode(line, False, parse_special) for line in asked]
        for line, ids, expected in zip(asked, found, theirs.encode_all(asked, parse_special), strict=True):
            assert ids == expected, line
        if not parse_special:
            made = {i for ids in found for i in ids if vocab.is_control(i)} - {vocab.unk_id}
            assert not made, "a user's text made a marker"
    for line in ("", "Hello world", "  x "):
        assert ours.encode(line, True, True) == theirs.encode(line, add_special=True)


def test_every_token_has_the_bytes_that_llama_cpp_writes(both: Both) -> None:
    _, ours, theirs = both
    vocab = ours.vocab
    ids = [*range(0, vocab.n_vocab, 17), *range(1000)]
    for token_id, expected in zip(ids, theirs.pieces(ids), strict=True):
        # Where a token is not written in the alphabet of bytes, llama.cpp tells so in the text itself.
        if not expected.startswith(b"[UNK_BYTE_0x"):
            assert vocab.bytes_of(token_id) == expected, (token_id, vocab.tokens[token_id])


def test_smollm2_gives_the_ids_of_its_own_pipeline() -> None:
    """As its authors publish it: single digits, then GPT-2's cut and bytes, by the package that trained it."""
    gguf = read_gguf(smollm2())
    ours, keys = open_text(gguf), gguf.metadata
    tokens: list[str] = keys["tokenizer.ggml.tokens"]  # type: ignore[assignment]
    merges: list[str] = keys["tokenizer.ggml.merges"]  # type: ignore[assignment]
    ids = {token: i for i, token in enumerate(tokens)}
    own = Tokenizer(BPE(ids, [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]))
    cuts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    own.pre_tokenizer = pre_tokenizers.Sequence(cuts)  # type: ignore[assignment]
    for parse_special in (False, True):
        if parse_special:
            control = [token for i, token in enumerate(tokens) if ours.vocab.is_control(i)]
            own.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
        for line, expected in zip(LINES, own.encode_batch(LINES, add_special_tokens=False), strict=True):
            assert ours.encode(line, False, parse_special) == expected.ids, line
