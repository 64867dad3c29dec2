"""SentencePiece's table of spellings: which characters a text is rewritten with first. Not here: spaces, tokens.

    offset 0   uint32      bytes of the trie
           4   uint32 ...  the trie: a double array over UTF-8 bytes (unit 0 is the root)
           …   bytes       the rewritten spellings, each ended by a zero byte

    unit       bits 0-7    the byte that leads here            bit 31 of a value: 1
               bit  8      a spelling ends here: unit `base` has its offset in bits 0-30
               bits 9-30   base: bits 10-30, times 256 where bit 9 is set; the child for byte b is unit  at ^ base ^ b

At each place the longest spelling counts; what the table does not have stays. Most tables are NFKC with changes.
"""

import sys

from engine.errors import BadModelFile

KEY = "tokenizer.ggml.precompiled_charsmap"
REMEMBERED = 1 << 16  # pairs of characters
_LABEL = 0x800000FF


class Charsmap:
    """One file's table. Safe to use from several threads at once."""

    def __init__(self, table: bytes) -> None:
        """BadModelFile for a table whose parts do not fit into it."""
        n = int.from_bytes(table[:4], "little")
        if len(table) < 4 or n % 4 or n == 0 or 4 + n >= len(table):
            raise BadModelFile(f"{KEY} has {len(table):,} bytes, {n:,} of them for its trie; the file is damaged")
        assert sys.byteorder == "little"
        self._trie = memoryview(table[4 : 4 + n]).cast("I")
        self._spellings = table[4 + n :]
        self._known: dict[str, tuple[int, str]] = {}

    def rewritten(self, text: str) -> str:
        """The text as the vocabulary spells it; BadModelFile where the table points outside itself."""
        known = self._known
        out: list[str] = []
        at, n = 0, len(text)
        while at < n:
            pair = text[at : at + 2]
            step = known.get(pair)
            if step is None:
                step, is_known = self._step(text, at)
                if is_known:
                    if len(known) >= REMEMBERED:
                        self._known = known = {}  # a new one: another thread may be reading the old
                    known[pair] = step
            at += step[0]
            out.append(step[1])
        return "".join(out)

    def _step(self, text: str, start: int) -> tuple[tuple[int, str], bool]:
        """How many characters from `start` on are rewritten as what, and whether the first two are enough to know."""
        trie = self._trie
        best = (1, text[start])
        node = _base(trie[0])
        try:
            for at in range(start, len(text)):
                ends = 0
                for byte in text[at].encode():
                    node ^= byte
                    if byte == 0 or trie[node] & _LABEL != byte:
                        return best, at <= start + 1
                    ends = trie[node] >> 8 & 1
                    node ^= _base(trie[node])
                if ends:
                    best = (at - start + 1, self._spelling(trie[node] & 0x7FFFFFFF))
        except IndexError:
            raise BadModelFile(f"{KEY} points to unit {node:,} of {len(trie):,}; the file is damaged") from None
        return best, len(text) == start + 1  # two characters at a text's end may be the beginning of more elsewhere

    def _spelling(self, offset: int) -> str:
        end = self._spellings.find(b"\0", offset)
        if end < 0:
            raise BadModelFile(f"{KEY} has a spelling at byte {offset:,} that does not end; the file is damaged")
        return self._spellings[offset:end].decode("utf-8", "replace")


def _base(unit: int) -> int:
    return unit >> 10 << (unit >> 6 & 8)
