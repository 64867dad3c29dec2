"""Words whose ids are found one by one and remembered: cut at spaces, kept in a table. Not here: what the ids are.

For vocabularies that write a space as U+2581 in front of a word.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from engine.errors import BadModelFile
from engine.tokenizer.vocab import SPACE

REMEMBERED = 16_384  # words whose ids are kept: the words of a language, about 3 MB
REMEMBERED_CHARS = 32  # longer words hardly come twice
LONGEST = 512  # characters of a token; the longest that published vocabularies of these kinds have is 48
_WORD_END = re.compile(f"[^{SPACE}](?={SPACE})", re.DOTALL)


class Words:
    """The ids of words by `found`, which sees each word once in a while. Safe to use from several threads at once."""

    def __init__(self, tokens: Iterable[str], found: Callable[[str], Sequence[int]]) -> None:
        """`tokens`: all that a text may become; they tell where words do not see each other."""
        self._found = found
        # Characters that some token joins across the border of two words; mostly there are none.
        self._joined = {
            token[at - 1 : at + 1] for token in tokens for at in range(1, len(token))
            if token[at] == SPACE and token[at - 1] != SPACE
        }  # fmt: skip
        self._known: dict[str, tuple[int, ...]] = {}

    def each(self, words: Iterable[str]) -> Iterator[tuple[int, ...]]:
        """The ids of each word."""
        known = self._known
        for word in words:
            ids = known.get(word)
            if ids is None:
                ids = tuple(self._found(word))
                if len(word) <= REMEMBERED_CHARS:
                    if len(known) >= REMEMBERED:
                        self._known = known = {}  # a new one: another thread may be reading the old
                    known[word] = ids
            yield ids

    def cut(self, written: str) -> Iterator[str]:
        """Cut before each space where no token reaches across: what is found on both sides is the same apart."""
        begin = 0
        for found in _WORD_END.finditer(written):
            end = found.end()
            if self._joined and written[end - 1 : end + 1] in self._joined:
                continue
            yield written[begin:end]
            begin = end
        yield written[begin:]


def sizes(tokens: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """First character -> the lengths, ascending, of the tokens that begin with it. BadModelFile for one so long that
    looking for it everywhere would take the square of a text's length."""
    found: dict[str, set[int]] = {}
    for token in tokens:
        found.setdefault(token[0], set()).add(len(token))
        if len(token) > LONGEST:
            raise BadModelFile(
                f"tokenizer.ggml.tokens: one has {len(token):,} characters, where {LONGEST} are the most that a "
                "vocabulary of this kind may have; the file is damaged"
            )
    return {first: tuple(sorted(lengths)) for first, lengths in found.items()}
