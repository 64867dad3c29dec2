"""Text and ids of one model file, the front door of the tokenizer. Not here: chat templates' rendering, sampling.

Opening reads the vocabulary only (the worker needs no more); what turns text into ids is built at its first use.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from engine.errors import BadModelFile
from engine.gguf.reader import GgufFile
from engine.tokenizer.splitters import splitter
from engine.tokenizer.spm import SpmEncoder, checked_scores
from engine.tokenizer.vocab import Vocab


class Encoder(Protocol):
    """Ids of a text without lone surrogates; begin and end tokens are added here."""

    def encode(self, text: str, parse_special: bool) -> list[int]: ...


class Text:
    """One file's tokenizer; every method may be called from any thread."""

    def __init__(self, vocab: Vocab, build: Callable[[], Encoder], chat_template: str | None) -> None:
        self.vocab = vocab
        self.chat_template = chat_template
        self._build: Callable[[], Encoder] | None = build
        self._encoder: Encoder | None = None
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

    def encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        """Ids of a text. `add_special` puts the begin and end tokens that the file asks for, each only where the text
        does not bring it already; `parse_special` reads names such as <|im_start|> in the text as tokens. A lone
        surrogate counts as U+FFFD."""
        if not text.isascii():
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        ids = self._encoding().encode(text, parse_special)
        vocab = self.vocab
        if add_special and vocab.add_bos and vocab.bos_id is not None and ids[:1] != [vocab.bos_id]:
            ids.insert(0, vocab.bos_id)
        if add_special and vocab.add_eos and vocab.eos_id is not None and ids[-1:] != [vocab.eos_id]:
            ids.append(vocab.eos_id)
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
    open_kind = _open_spm if keys.get("tokenizer.ggml.model") == "llama" else _open_bpe
    return Text(*open_kind(gguf), template)


def _open_bpe(gguf: GgufFile) -> tuple[Vocab, Callable[[], Encoder]]:
    keys = gguf.metadata
    cut_by = splitter(keys.get("tokenizer.ggml.pre")) if keys.get("tokenizer.ggml.model") == "gpt2" else None
    vocab = Vocab(keys, add_bos_default=cut_by is not None and cut_by.add_bos)
    assert cut_by is not None, "Vocab refuses every other kind"
    merges = keys.get("tokenizer.ggml.merges")
    if not isinstance(merges, list):
        raise BadModelFile("tokenizer.ggml.merges is missing or no list; the file has a vocabulary but no rules")

    def build() -> Encoder:
        from engine.tokenizer.bpe import BpeEncoder  # the package behind it takes 20 MB and 50 ms

        return BpeEncoder(vocab, merges, cut_by)

    return vocab, build


def _open_spm(gguf: GgufFile) -> tuple[Vocab, Callable[[], Encoder]]:
    vocab = Vocab(gguf.metadata)
    key = "tokenizer.ggml.scores"
    scores = checked_scores(gguf.metadata.get(key), gguf.kinds.get(key), vocab.n_vocab)
    return vocab, lambda: SpmEncoder(vocab, scores)
