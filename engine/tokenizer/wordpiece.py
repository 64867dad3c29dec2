"""Text to ids by WordPiece, BERT's way: plain words, and the longest tokens from the left. Not here: other kinds.

    "Caffè, 北京!"  ->  caffe  ,  北  京  !  ->  [▁ca] [ffe] [▁,] [▁北] [▁京] [▁!]

Capitals and accents go where the file does not say otherwise; marks and ideographs are words of their own; control
characters vanish. A word begins with U+2581 in the file; one that no row of tokens spells is the unknown token.
"""

import unicodedata
from collections.abc import Iterator

from engine.tokenizer.classes import WHITE_SPACE
from engine.tokenizer.names import Names, is_text
from engine.tokenizer.vocab import SPACE, Kind, Vocab
from engine.tokenizer.words import Words, sizes

# The blocks that BERT calls Chinese; U+2B820 to U+2B91F is in none of its implementations.
_IDEOGRAPHS = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF), (0x2F800, 0x2FA1F),
)  # fmt: skip


class WordPieceEncoder:
    """Encodes with one file's vocabulary. Safe to use from several threads at once."""

    def __init__(self, vocab: Vocab, lowercase: bool = True, strip_accents: bool = True) -> None:
        """BadModelFile for a vocabulary with tokens of absurd length."""
        self._names = Names(vocab)
        self._ids = {
            token: i
            for i, token in enumerate(vocab.tokens)
            if vocab.kinds[i] not in (Kind.CONTROL, Kind.UNKNOWN) and token and is_text(token)
        }
        self._sizes = {first: lengths[::-1] for first, lengths in sizes(self._ids).items()}
        self._unknown = () if vocab.unk_id is None else (vocab.unk_id,)
        self._plain = _Plain(lowercase, strip_accents)
        self._words = Words((), self._spelt)

    def encode(self, text: str, parse_special: bool, mark: str = "") -> list[int]:
        """The ids of a text without lone surrogates, begin and end tokens aside."""
        out: list[int] = []
        for part in self._names.parts(text, parse_special, mark):
            if isinstance(part, int):
                out.append(part)
                continue
            for ids in self._words.each(filter(None, part.translate(self._plain).split(" "))):
                out.extend(ids)
        return out

    def _spelt(self, word: str) -> tuple[int, ...]:
        found = tuple(self._longest_first(SPACE + word))
        return self._unknown if None in found else found  # type: ignore[return-value]

    def _longest_first(self, word: str) -> Iterator[int | None]:
        """The ids from the left; None is the last one where nothing fits."""
        at = 0
        while at < len(word):
            for size in self._sizes.get(word[at], ()):
                token_id = self._ids.get(word[at : at + size]) if at + size <= len(word) else None
                if token_id is not None:
                    break
            else:
                token_id = None
            yield token_id
            if token_id is None:
                return
            at += size


class _Plain(dict[int, str]):
    """Code point -> what is left of it: for str.translate(), which asks once for each."""

    def __init__(self, lowercase: bool, strip_accents: bool) -> None:
        self._lowercase, self._strip = lowercase, strip_accents

    def __missing__(self, point: int) -> str:
        if len(self) > 1 << 17:  # more than any text of people has
            self.clear()
        self[point] = found = self._of(chr(point))
        return found

    def _of(self, char: str) -> str:
        # Of a decomposition the first character counts, as in llama.cpp: é is e, but 한 only its first sound, where
        # BERT's own code keeps all three. Vocabularies that strip accents know no Korean to speak of.
        char = unicodedata.normalize("NFD", char)[0] if self._strip else char
        point, category = ord(char), unicodedata.category(char)
        if any(first <= point <= last for first, last in WHITE_SPACE):
            return " "
        if category in ("Cc", "Cf", "Co", "Cs") or point == 0xFFFD or (self._strip and category[0] == "M"):
            return ""
        plain = char.lower()[0] if self._lowercase else char
        alone = category[0] == "P" or (category[0] == "S" and point < 0x7F)
        return f" {plain} " if alone or any(first <= point <= last for first, last in _IDEOGRAPHS) else plain
