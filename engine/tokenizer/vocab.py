"""The vocabulary of a model file: ids, the bytes behind them, which are special. Not here: text to ids.

Cheap on purpose (it keeps the file's own list and one byte per token): the worker needs nothing else to write text.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from engine.errors import BadModelFile, InvalidParameter, UnsupportedModel
from engine.tokenizer.alphabet import spoken
from engine.tokenizer.defaults import MODELS
from engine.tokenizer.endings import control_looking, end_of_generation, plain_anyway, shown_anyway

SPACE = "\u2581"  # how SentencePiece writes a space
NO_ID = 0xFFFFFFFF  # how converters write "there is none" into an unsigned key


class Kind(IntEnum):
    """`tokenizer.ggml.token_type`, with the numbers of the file format."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


NAMED = (Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED)
"""The kinds that are found in a text by their name."""


def kind_of_tokenizer(metadata: Mapping[str, object]) -> str:
    """One of MODELS; BadModelFile where there is none, UnsupportedModel for others."""
    model = metadata.get("tokenizer.ggml.model")
    if not isinstance(model, str):
        raise BadModelFile(
            "the model file has no tokenizer (the key tokenizer.ggml.model is missing); use a file "
            "that was converted with its tokenizer"
        )
    if model not in MODELS:
        known = ", ".join(f"{kind!r} ({name})" for kind, (name, _) in MODELS.items())
        raise UnsupportedModel(
            f"the model file's tokenizer is of kind {model[:40]!r} (tokenizer.ggml.model); this version reads {known}"
        )
    return model


class Vocab:
    """Ids and their bytes. Raises BadModelFile or UnsupportedModel for a vocabulary that contradicts itself."""

    def __init__(self, metadata: Mapping[str, object], *, add_bos_default: bool = False) -> None:
        model = kind_of_tokenizer(metadata)
        silent = MODELS[model][1]
        self.model = model
        self.tokens = _strings(metadata, "tokenizer.ggml.tokens")
        self.n_vocab = len(self.tokens)
        self.kinds = _kinds(metadata, self.n_vocab)
        self.bos_id = self._id(metadata, "bos", silent.bos)
        self.eos_id = self._id(metadata, "eos", silent.eos)
        self.unk_id = None if model == "gpt2" else self._id(metadata, "unknown", silent.unk)
        self.eot_id = self._id(metadata, "eot")
        self.eom_id = self._id(metadata, "eom")
        add_bos = flag(metadata, "tokenizer.ggml.add_bos_token", silent.add_bos or add_bos_default)
        add_eos = flag(metadata, "tokenizer.ggml.add_eos_token", silent.add_eos)
        self.begin_id = self.bos_id if add_bos else None
        self.end_id = self.eos_id if add_eos else None
        if model == "gemma4":  # early files say that there is none
            self.begin_id = self.bos_id
        if model == "bert":  # always [CLS] … [SEP]; a file may name them so, "separator" misspelt as the format has it
            self.begin_id = self._id(metadata, "cls", self.bos_id)
            self.end_id = self._id(metadata, "seperator", silent.eos)
        self.separator_id = self._id(metadata, "seperator", self.eos_id)
        self.separates_twice = model == "t5" and flag(metadata, "tokenizer.ggml.add_sep_token", True)  # between a pair
        self.space_prefix = model != "gpt2" and flag(metadata, "tokenizer.ggml.add_space_prefix", silent.space_prefix)
        self.merge_spaces = model == "t5" and flag(metadata, "tokenizer.ggml.remove_extra_whitespaces", False)
        # Whether a text's first word has a space that is no part of the text.
        self._space_in_front = self.space_prefix or self.merge_spaces or model == "bert"
        self.eog_ids = self._endings()
        self.swallows_after, self.swallows_before = self._swallowing(metadata)

    def _id(self, metadata: Mapping[str, object], name: str, default: int | None = None) -> int | None:
        key = f"tokenizer.ggml.{name}_token_id"
        value = metadata.get(key)
        if value is None and default is not None and default < self.n_vocab:
            return default
        if value is None or value == NO_ID:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < self.n_vocab:
            raise BadModelFile(
                f"{key} is {str(value)[:40]}, which is no id of the {self.n_vocab} tokens in the file; "
                "the file is damaged or was converted wrongly"
            )
        return value

    def _endings(self) -> frozenset[int]:
        """Settle the kinds of tokens that files mislabel, and find the ids that end an answer."""
        looks = control_looking()
        found = {token: i for i, token in enumerate(self.tokens) if token in looks}
        for i in found.values():
            self.kinds[i] = Kind.CONTROL
        ends = end_of_generation(found)
        for token, i in found.items():
            if token in shown_anyway(found):
                self.kinds[i] = Kind.USER_DEFINED
            elif token in plain_anyway(found):
                self.kinds[i] = Kind.NORMAL
        return frozenset(ends | {i for i in (self.eos_id, self.eot_id, self.eom_id) if i is not None})

    def _swallowing(self, metadata: Mapping[str, object]) -> tuple[frozenset[int], frozenset[int]]:
        """Markers that take the white space after them along, and before them: all of Phi-3's but three, the mask of
        some encoders. Files do not say so; llama.cpp goes by the names of model, tokenizer and architecture."""
        name, pre, family = (
            str(metadata.get(key, "")).lower() for key in ("general.name", "tokenizer.ggml.pre", "general.architecture")
        )
        masks: tuple[str, ...] = ()
        if pre in ("jina-v2-de", "jina-v2-es", "jina-v2-code") or family in ("nomic-bert-moe", "jina-bert-v3"):
            masks = ("<mask>",)
        elif "modern-bert" in name:
            masks = ("[MASK]",)
        elif self.model == "llama" and ("phi-3" in name or "phi3" in name):
            kept = ("<unk>", "<s>", "<|endoftext|>")
            return frozenset(i for i in self.named if self.tokens[i] not in kept), frozenset()
        return frozenset(), frozenset(i for i in self.named if self.tokens[i] in masks) if masks else frozenset()

    @property
    def named(self) -> list[int]:
        """The ids of tokens that are found in a text by their name."""
        return [i for i, kind in enumerate(self.kinds) if kind in NAMED]

    def _check(self, token_id: int) -> int:
        if not 0 <= token_id < self.n_vocab:
            raise InvalidParameter(f"token id {token_id} is outside the vocabulary, 0 to {self.n_vocab - 1}")
        return token_id

    def is_control(self, token_id: int) -> bool:
        """A marker such as <|im_end|>: never made from plain text unless special tokens are parsed."""
        return self.kinds[self._check(token_id)] == Kind.CONTROL

    def is_special(self, token_id: int) -> bool:
        """Not part of the answer's text (control and unknown); user-defined tokens are text."""
        return self.kinds[self._check(token_id)] in (Kind.CONTROL, Kind.UNKNOWN)

    def bytes_of(self, token_id: int) -> bytes:
        """The bytes that a token stands for; of a special token its name, of a filler nothing.

        In byte-level BPE, a token with characters outside the byte alphabet stands for its own UTF-8.
        """
        kind = self.kinds[self._check(token_id)]
        token = self.tokens[token_id]
        if kind == Kind.UNUSED:
            return b""
        if kind == Kind.BYTE and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            try:
                return bytes.fromhex(token[3:5])
            except ValueError:
                pass
        if kind in (Kind.NORMAL, Kind.UNDEFINED, Kind.BYTE):
            if self.model != "gpt2":
                token = token.replace(SPACE, " ")
            elif (raw := spoken(token)) is not None:
                return raw
        return token.encode("utf-8", "surrogateescape")

    def bytes_after(self, token_id: int, previous: int | None) -> bytes:
        """As bytes_of(), without the space that encoding puts in front of a text (`previous` None) and of what
        follows a marker: there it is no part of the text."""
        raw = self.bytes_of(token_id)
        if not self._space_in_front or raw[:1] != b" " or self.tokens[token_id][:1] != SPACE:
            return raw
        begins = previous is None or self.kinds[self._check(previous)] in NAMED
        return raw[1:] if begins else raw

    def decode(self, ids: Sequence[int], special: bool = False) -> bytes:
        """The bytes of a text's ids from its beginning, special tokens by name or left out."""
        shown = [i for i in ids if special or not self.is_special(i)]
        return b"".join(map(self.bytes_after, shown, [None, *shown]))


def _strings(metadata: Mapping[str, object], key: str) -> list[str]:
    value = metadata.get(key)
    if not isinstance(value, list) or not value or not all(type(item) is str for item in value):
        seen = "missing" if value is None else "not a list of texts"
        raise BadModelFile(f"{key} is {seen}; the file has no usable vocabulary, download or convert it again")
    return value


def _kinds(metadata: Mapping[str, object], n_vocab: int) -> bytearray:
    """One byte per token; a file without the key has normal tokens only."""
    value = metadata.get("tokenizer.ggml.token_type")
    if value is None:
        return bytearray([Kind.NORMAL]) * n_vocab
    if not isinstance(value, list) or len(value) != n_vocab:
        seen = len(value) if isinstance(value, list) else "no list"
        raise BadModelFile(f"tokenizer.ggml.token_type has {seen} entries for {n_vocab} tokens; the file is damaged")
    try:
        kinds = bytearray(value)
    except (TypeError, ValueError):
        kinds = bytearray([255])
    if max(kinds) > max(Kind):
        raise BadModelFile("tokenizer.ggml.token_type holds something other than the kinds 0 to 6; the file is damaged")
    return kinds


def flag(metadata: Mapping[str, object], key: str, default: bool) -> bool:
    """A true or false of the file; BadModelFile for anything else."""
    value = metadata.get(key, default)
    if not isinstance(value, bool):
        raise BadModelFile(f"{key} is {str(value)[:40]!r}, not true or false; the file was converted wrongly")
    return value
