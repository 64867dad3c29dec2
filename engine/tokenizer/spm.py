"""Text to ids by SentencePiece's BPE: merges by score, bytes for the rest. Not here: merges by rank (bpe.py).

Of all neighbours that form a token, the one with the best score is merged first, the leftmost of those alike.
A space is written U+2581, and a text that begins or follows a marker gets one in front. Characters without a token
become their bytes.

The queue holds one number for each neighbour, so a piece of n characters costs n log n, without recursion.
"""

from array import array
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from engine.tokenizer.names import Names, is_text
from engine.tokenizer.vocab import SPACE, Kind, Vocab
from engine.tokenizer.words import Words

_AT_BITS = 32  # of a place in a piece


class SpmEncoder:
    """Encodes with one file's vocabulary and scores. Safe to use from several threads at once."""

    def __init__(self, vocab: Vocab, scores: Sequence[float]) -> None:
        """`scores`: one for each token, the higher the earlier; checked by checked_scores()."""
        self._names = Names(vocab)
        self._space_prefix = vocab.space_prefix
        merged = {
            token: i
            for i, token in enumerate(vocab.tokens)
            if vocab.kinds[i] not in (Kind.CONTROL, Kind.UNKNOWN, Kind.BYTE) and token and is_text(token)
        }
        self._ids = {token: i for token, i in merged.items() if vocab.kinds[i] != Kind.UNUSED}
        longest = max(map(len, merged), default=1)
        self._size_bits = longest.bit_length()
        place = {score: at for at, score in enumerate(sorted({scores[i] for i in merged.values()}, reverse=True))}
        above = self._size_bits + _AT_BITS
        # The upper bits of a neighbour's number in the queue: best score first, then leftmost, then the size.
        self._ranks = {token: place[scores[i]] << above for token, i in merged.items() if len(token) > 1}
        self._longest = longest
        self._unused = {token for token, i in merged.items() if vocab.kinds[i] == Kind.UNUSED}
        self._unknown = vocab.unk_id
        by_name = {token: i for i, token in enumerate(vocab.tokens) if len(token) == 6 and token.startswith("<0x")}
        self._bytes = [by_name.get(f"<0x{byte:02X}>") for byte in range(256)]
        self._words = Words(merged, self._merged)

    def encode(self, text: str, parse_special: bool, mark: str = "") -> list[int]:
        """The ids of a text without lone surrogates, begin and end tokens aside. A character for which there is
        neither a token nor its bytes becomes the unknown token, or is left out where the file has none."""
        out: list[int] = []
        after_marker = True
        for part in self._names.parts(text, parse_special, mark):
            if isinstance(part, int):
                out.append(part)
                after_marker = True
                continue
            written = part.replace(" ", SPACE)
            if after_marker and self._space_prefix:
                written = SPACE + written
            for ids in self._words.each(self._words.cut(written)):
                out.extend(ids)
            after_marker = False
        return out

    def _merged(self, word: str) -> list[int]:
        n = len(word)
        ranks, size_bits, longest = self._ranks, self._size_bits, self._longest
        size_mask, at_mask = (1 << size_bits) - 1, (1 << _AT_BITS) - 1
        # ends[i]: where the symbol that begins at i ends, which is where its neighbour begins; n for one that was
        # merged into its left neighbour. befores[i]: where the symbol before it begins.
        ends = array("i", range(1, n + 2))
        ends[n] = 0
        befores = array("i", range(-1, n))
        queue = [
            rank | i << size_bits | 2
            for i in range(n - 1)
            if (rank := ranks.get(word[i : i + 2])) is not None
        ]  # fmt: skip
        heapify(queue)
        splits: dict[str, int] = {}
        while queue:
            best = heappop(queue)
            begin, size = best >> size_bits & at_mask, best & size_mask
            middle, end = ends[begin], begin + size
            if ends[middle] != end:
                continue  # one of the two has become part of something else meanwhile
            if self._unused and word[begin:end] in self._unused:
                splits[word[begin:end]] = middle - begin
            ends[begin], ends[middle], befores[end] = end, n, begin
            before = befores[begin]
            if before >= 0 and end - before <= longest:
                rank = ranks.get(word[before:end])
                if rank is not None:
                    heappush(queue, rank | before << size_bits | end - before)
            if end < n and ends[end] - begin <= longest:
                after = ends[end]
                rank = ranks.get(word[begin:after])
                if rank is not None:
                    heappush(queue, rank | begin << size_bits | after - begin)
        out: list[int] = []
        begin = 0
        while begin < n:
            token_id = self._ids.get(word[begin : ends[begin]])
            if token_id is not None:
                out.append(token_id)
            else:
                self._spell(word[begin : ends[begin]], splits, out)
            begin = ends[begin]
        return out

    def _spell(self, symbol: str, splits: dict[str, int], out: list[int]) -> None:
        """A symbol that is no token of its own: an unused one as the two it was merged from, a character as bytes."""
        waiting = [symbol]
        while waiting:
            part = waiting.pop()
            token_id = self._ids.get(part)
            if token_id is not None:
                out.append(token_id)
            elif part in splits:
                waiting += (part[splits[part] :], part[: splits[part]])
            else:
                spelt = [self._bytes[byte] for byte in part.encode()]
                found = [i for i in spelt if i is not None]
                if len(found) == len(spelt):
                    out += found
                elif self._unknown is not None and out[-1:] != [self._unknown]:
                    out.append(self._unknown)  # one for a row of unknown characters
