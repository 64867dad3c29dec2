"""Text to ids by SentencePiece's unigram model: the row of tokens with the best sum. Not here: merging (spm.py).

The text is rewritten by the file's table (charsmap.py) first, and spaces are put in order. A character that is no token
costs ten more than the worst token; a row of such characters is one unknown token.

Scores are float32 and their sums are doubles, so sums of a million of them are exact, and a word's best row is the same
alone as in its text: words are done one by one and remembered.
"""

from array import array
from collections.abc import Sequence
from itertools import pairwise
from math import inf

from engine.tokenizer.charsmap import Charsmap
from engine.tokenizer.names import Names, is_text
from engine.tokenizer.vocab import SPACE, Kind, Vocab
from engine.tokenizer.words import Words, sizes

UNKNOWN_COSTS = 10.0


class UgmEncoder:
    """Encodes with one file's vocabulary and scores. Safe to use from several threads at once."""

    def __init__(self, vocab: Vocab, scores: Sequence[float], charsmap: Charsmap | None) -> None:
        """`scores`: one log probability for each token, checked by checked_scores(). BadModelFile for a vocabulary with
        tokens of absurd length."""
        self._names = Names(vocab)
        self._charsmap, self._merge_spaces, self._space_prefix = charsmap, vocab.merge_spaces, vocab.space_prefix
        wanted = (Kind.NORMAL, Kind.USER_DEFINED, Kind.UNUSED)
        self._tokens = {
            token: (0.0 if vocab.kinds[i] == Kind.USER_DEFINED else scores[i], i)
            for i, token in enumerate(vocab.tokens)
            if vocab.kinds[i] in wanted and token and is_text(token)
        }
        self._sizes = sizes(self._tokens)
        worst = min((scores[i] for i in range(vocab.n_vocab) if vocab.kinds[i] == Kind.NORMAL), default=0.0)
        self._unknown_score = array("f", [worst - UNKNOWN_COSTS])[0]
        self._unknown = -1 if vocab.unk_id is None else vocab.unk_id
        self._words = Words(self._tokens, self._best)

    def encode(self, text: str, parse_special: bool, mark: str = "") -> list[int]:
        """The ids of a text without lone surrogates, begin and end tokens aside. A row of characters for which there is
        no token becomes the unknown token, or is left out where the file has none."""
        out: list[int] = []
        for part in self._names.parts(text, parse_special, mark):
            if isinstance(part, int):
                out.append(part)
                continue
            plain: list[int] = []
            for ids in self._words.each(self._words.cut(self._written(part))):
                joined = plain and ids and plain[-1] == ids[0] == self._unknown
                plain.extend(ids[1:] if joined else ids)
            out.extend(plain if self._unknown >= 0 else [i for i in plain if i >= 0])
        return out

    def _written(self, text: str) -> str:
        """The text with its spaces as the vocabulary writes them; merged, each word has one before it, nothing else."""
        if self._charsmap is not None:
            text = self._charsmap.rewritten(text)
        if self._merge_spaces:
            return "".join(SPACE + word for word in text.split(" ") if word)
        if self._space_prefix and (words := text.lstrip(" ")):
            text = text[: -len(words)] + " " + words
        return text.replace(" ", SPACE)

    def _best(self, word: str) -> list[int]:
        n = len(word)
        sums = [0.0] + [-inf] * n
        begins, ids = [0] * (n + 1), [self._unknown] * (n + 1)
        tokens, unknown_score = self._tokens, self._unknown_score
        for at in range(n):
            here = sums[at]
            alone = False
            for size in self._sizes.get(word[at], ()):
                found = tokens.get(word[at : at + size])
                end = at + size
                if found is None or end > n:
                    continue
                alone = alone or size == 1
                if here + found[0] > sums[end]:
                    sums[end], begins[end], ids[end] = here + found[0], at, found[1]
            if not alone and here + unknown_score > sums[at + 1]:
                sums[at + 1], begins[at + 1], ids[at + 1] = here + unknown_score, at, self._unknown
        out: list[int] = []
        end = n
        while end:
            out.append(ids[end])
            end = begins[end]
        out.reverse()
        return out[:1] + [b for a, b in pairwise(out) if not a == b == self._unknown]
