"""Text and ids of one model file, the front door of the tokenizer. Not here: chat templates' rendering, sampling.

Opening reads the vocabulary only (the worker needs no more); what turns text into ids is built at its first use.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from engine.errors import BadModelFile
from engine.gguf.reader import GgufFile
from engine.tokenizer.charsmap import KEY as CHARSMAP
from engine.tokenizer.charsmap import Charsmap
from engine.tokenizer.names import Names
from engine.tokenizer.scores import KEY as SCORES
from engine.tokenizer.scores import checked_scores
from engine.tokenizer.splitters import LINES, splitter
from engine.tokenizer.spm import SpmEncoder
from engine.tokenizer.ugm import UgmEncoder
from engine.tokenizer.vocab import Vocab, flag, kind_of_tokenizer
from engine.tokenizer.wordpiece import WordPieceEncoder

MARKS = tuple(map(chr, range(0xFDD0, 0xFDF0)))  # Unicode promises that these will never be characters


class Encoder(Protocol):
    """Ids of a text without lone surrogates; begin and end tokens are added here. `mark`: names.py, shield()."""

    def encode(self, text: str, parse_special: bool, mark: str = "") -> list[int]: ...


class Text:
    """One file's tokenizer; every method may be called from any thread."""

    def __init__(self, vocab: Vocab, build: Callable[[], Encoder], chat_template: str | None) -> None:
        self.vocab = vocab
        self.chat_template = chat_template
        self.tool_template: str | None = None
        self._build: Callable[[], Encoder] | None = build
        self._encoder: Encoder | None = None
        self._names: Names | None = None
        self._building = threading.Lock()

    def prepare(self) -> None:
        """Build the encoder now (0.15 s for 49k tokens), so that the first request does not wait for it."""
        self._encoding()

    def _encoding(self) -> Encoder:
        with self._building:
            if self._encoder is None:
                assert self._build is not None
                self._encoder = self._build()
                self._build = None  # lets go of merges and scores
            return self._encoder

    def shield(self, text: str, mark: str) -> str:
        """A text that goes into a prompt, with `mark` (one of MARKS that no text of the prompt has) inside every name
        such as <|im_start|>: encode() with the same `mark` takes it for what it is, text."""
        with self._building:
            if self._names is None:
                self._names = Names(self.vocab)
        return self._names.shield(text, mark)

    def encode(self, text: str, add_special: bool, parse_special: bool, mark: str = "") -> list[int]:
        """Ids of a text. `add_special` puts the begin and end tokens that the file asks for, each only where the text
        does not bring it already; `parse_special` reads names such as <|im_start|> in the text as tokens, but for
        those with a `mark`. A lone surrogate counts as U+FFFD."""
        if not text.isascii():
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        ids = self._encoding().encode(text, parse_special, mark)
        vocab = self.vocab
        if add_special and vocab.begin_id is not None and ids[:1] != [vocab.begin_id]:
            ids.insert(0, vocab.begin_id)
        if add_special and vocab.end_id is not None and ids[-1:] != [vocab.end_id]:
            ids.append(vocab.end_id)
        return ids

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        """Text of ids from its beginning, bytes that are no UTF-8 as U+FFFD; special tokens by name or left out."""
        return self.vocab.decode(ids, special).decode("utf-8", "replace")

    def piece(self, token_id: int) -> str:
        """One token as text with its leading space, special ones by name."""
        return self.vocab.bytes_of(token_id).decode("utf-8", "replace")

    def name(self, token_id: int | None) -> str:
        """A special token as templates want it: its text, or "" where the file has none."""
        return "" if token_id is None else self.piece(token_id)


def open_text(gguf: GgufFile) -> Text:
    """The tokenizer of a file; UnsupportedModel for kinds and pre-tokenizers that nobody here knows."""
    keys = gguf.metadata
    template = keys.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise BadModelFile("tokenizer.chat_template is not a text; the file was converted wrongly")
    text = Text(*_OPEN.get(kind_of_tokenizer(keys), _open_bpe)(gguf), template)
    for_tools = keys.get("tokenizer.chat_template.tool_use")  # a second template that some families have
    text.tool_template = for_tools if isinstance(for_tools, str) else None
    return text


def _open_bpe(gguf: GgufFile) -> tuple[Vocab, Callable[[], Encoder]]:
    keys = gguf.metadata
    over_characters = keys.get("tokenizer.ggml.model") == "gemma4"
    cut_by = LINES if over_characters else splitter(keys.get("tokenizer.ggml.pre"))
    vocab = Vocab(keys, add_bos_default=cut_by.add_bos)
    merges = keys.get("tokenizer.ggml.merges")
    if not isinstance(merges, list):
        raise BadModelFile("tokenizer.ggml.merges is missing or no list; the file has a vocabulary but no rules")

    def build() -> Encoder:
        from engine.tokenizer.bpe import BpeEncoder  # the package behind it takes 20 MB and 50 ms

        return BpeEncoder(vocab, merges, cut_by, over_characters)

    return vocab, build


def _open_spm(gguf: GgufFile) -> tuple[Vocab, Callable[[], Encoder]]:
    vocab = Vocab(gguf.metadata)
    scores = checked_scores(gguf.metadata.get(SCORES), gguf.kinds.get(SCORES), vocab.n_vocab)
    return vocab, lambda: SpmEncoder(vocab, scores)


def _open_ugm(gguf: GgufFile) -> tuple[Vocab, Callable[[], Encoder]]:
    keys = gguf.metadata
    vocab = Vocab(keys)
    scores = checked_scores(keys.get(SCORES), gguf.kinds.get(SCORES), vocab.n_vocab)
    table = keys.get(CHARSMAP)
    charsmap = None
    if isinstance(table, list) and gguf.kinds[CHARSMAP] in ("array[uint8]", "array[int8]"):
        charsmap = Charsmap(bytes(value & 255 for value in table if isinstance(value, int)))
    elif table is not None:
        raise BadModelFile(f"{CHARSMAP} is of type {gguf.kinds[CHARSMAP]}, not bytes; the file was converted wrongly")
    return vocab, lambda: UgmEncoder(vocab, scores, charsmap)


def _open_wordpiece(gguf: GgufFile) -> tuple[Vocab, Callable[[], Encoder]]:
    vocab = Vocab(gguf.metadata)
    lowercase = flag(gguf.metadata, "tokenizer.ggml.normalizer.lowercase", True)
    strip_accents = flag(gguf.metadata, "tokenizer.ggml.normalizer.strip_accents", lowercase)
    return vocab, lambda: WordPieceEncoder(vocab, lowercase, strip_accents)


_OPEN = {"gpt2": _open_bpe, "gemma4": _open_bpe, "llama": _open_spm, "t5": _open_ugm, "bert": _open_wordpiece}
