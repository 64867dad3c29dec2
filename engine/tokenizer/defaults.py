"""The kinds of vocabulary that are read, and what holds where a file is silent. Not here: reading one (vocab.py)."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where a file says nothing: ids of the special tokens, what encoding adds, a space in front."""

    bos: int | None = None
    eos: int | None = None
    unk: int | None = None
    add_bos: bool = False
    add_eos: bool = False
    space_prefix: bool = False


MODELS: Mapping[str, tuple[str, Defaults]] = {
    "gpt2": ("byte-level BPE", Defaults()),
    # SentencePiece numbers <unk>, <s>, </s> from 0, and many of its files do not say so.
    "llama": ("SentencePiece BPE", Defaults(bos=1, eos=2, unk=0, add_bos=True, space_prefix=True)),
    "t5": ("SentencePiece unigram", Defaults(eos=1, unk=2, add_eos=True)),
    "gemma4": ("BPE over characters", Defaults(add_bos=True)),
    "bert": ("WordPiece", Defaults(bos=101, eos=102, unk=100, add_bos=True, add_eos=True)),
}
"""`tokenizer.ggml.model` -> what it is called elsewhere, and its defaults."""
