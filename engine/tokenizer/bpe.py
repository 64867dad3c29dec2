"""Text to ids by BPE over bytes or characters: pieces and merges. Not here: special tokens, borders (cuts.py).

Merging is the package `tokenizers`, given one piece at a time: its queue is n log n in a piece's length (a piece of
1 MB: 0.3 to 0.9 s on a Zen 3 core), and it lets go of the interpreter lock meanwhile. Its own splitting is not used:
on a megabyte of single digits it took 0.6 GB and 2.8 s where spans take 10 MB.
"""

import os
from collections.abc import Sequence
from itertools import chain

from engine.errors import BadModelFile
from engine.tokenizer.alphabet import BYTE_OF_CHAR, CHAR_OF_BYTE
from engine.tokenizer.cuts import pieces
from engine.tokenizer.names import Names, is_text
from engine.tokenizer.splitters import Splitter
from engine.tokenizer.vocab import SPACE, Kind, Vocab

# One prompt is one stream of pieces; a thread per core would only take cores from the engine. Read by `tokenizers`
# when it is first used.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import Tokenizer, models, pre_tokenizers

REMEMBERED = 16_384  # pieces whose ids are kept: the words of a language, about 3 MB
REMEMBERED_CHARS = 32  # longer pieces hardly come twice
BATCH = 4_096  # new pieces merged at a time


class BpeEncoder:
    """Encodes with one file's vocabulary and merges. Safe to use from several threads at once."""

    def __init__(
        self, vocab: Vocab, merges: Sequence[object], splitter: Splitter, over_characters: bool = False
    ) -> None:
        """`over_characters`: merges begin with characters, a space written U+2581 (one without a token is its bytes,
        <0x0A>), not with the byte alphabet. BadModelFile when a merge is not two texts with a space between them."""
        ids = {token: i for i, token in enumerate(vocab.tokens) if _mergeable(token, vocab.kinds[i])}
        self._over_characters = over_characters
        self._steps = splitter.steps
        lacking = "".join(rf"\u{byte:04x}" for byte in range(128) if CHAR_OF_BYTE[byte] not in ids)
        if splitter.gaps_part and lacking:
            self._steps += (f"[{lacking}]",)
        pairs = _merge_pairs(merges, ids)
        self._merger = Tokenizer(
            models.BPE(ids, pairs, ignore_merges=splitter.whole_first, byte_fallback=over_characters)
        )
        # What is never merged: runs of line ends that are tokens, where no merge leads to them.
        self._whole: dict[str, tuple[int, ...]] = {}
        if over_characters:
            self._whole = {token: (i,) for token, i in ids.items() if not token.strip("\n")}
        else:
            self._merger.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._known = self._whole
        self._names = Names(vocab)

    def encode(self, text: str, parse_special: bool, mark: str = "") -> list[int]:
        """The ids of a text without lone surrogates, begin and end tokens aside. Control tokens are seen in it only
        with `parse_special`; user-defined ones always, as they are text. A byte that the vocabulary lacks (SmolLM2
        has no U+0004) is left out."""
        out: list[int] = []
        for part in self._names.parts(text, parse_special, mark):
            if isinstance(part, int):
                out.append(part)
            else:
                self._encode_plain(part.replace(" ", SPACE) if self._over_characters else part, out)
        return out

    def _encode_plain(self, text: str, out: list[int]) -> None:
        known = self._known
        waiting: list[str] = []
        fresh: dict[str, tuple[int, ...]] = {}
        for piece in pieces(text, self._steps):
            waiting.append(piece)
            if piece not in known:
                fresh.setdefault(piece, ())
            if len(fresh) >= BATCH or len(waiting) >= 4 * BATCH:
                known = self._settle(known, waiting, fresh, out)
        self._settle(known, waiting, fresh, out)

    def _settle(
        self,
        known: dict[str, tuple[int, ...]],
        waiting: list[str],
        fresh: dict[str, tuple[int, ...]],
        out: list[int],
    ) -> dict[str, tuple[int, ...]]:
        """Merge the `fresh` pieces, append the ids of all that wait, forget both; returns what is known now."""
        if not fresh:
            out.extend(chain.from_iterable(map(known.__getitem__, waiting)))
            waiting.clear()
            return known
        found = self._merger.encode_batch_fast(list(fresh), add_special_tokens=False)
        fresh.update(zip(fresh, (tuple(each.ids) for each in found), strict=True))
        for piece in waiting:
            ids = fresh.get(piece)
            out.extend(known[piece] if ids is None else ids)
        kept = {piece: ids for piece, ids in fresh.items() if len(piece) <= REMEMBERED_CHARS}
        # Always a new dictionary: another thread may be reading the old one.
        now = {**known, **kept} if len(known) + len(kept) <= REMEMBERED else {**self._whole, **kept}
        self._known = now
        waiting.clear()
        fresh.clear()
        return now


def _mergeable(token: str, kind: int) -> bool:
    """Whether merging may end at this token. Control tokens come from their names alone, so that no spelling of a
    user's text makes one; a file that calls a single byte a control token still means the byte."""
    if kind in (Kind.CONTROL, Kind.UNKNOWN, Kind.UNUSED):
        return len(token) == 1 and token in BYTE_OF_CHAR
    return is_text(token)


def _merge_pairs(merges: Sequence[object], ids: dict[str, int]) -> list[tuple[str, str]]:
    """The merges in order of rank. One whose parts or result are not in the vocabulary can never be used; of two
    alike the first counts."""
    pairs: dict[tuple[str, str], None] = {}
    for rank, merge in enumerate(merges):
        # Looked for after the first character: a space is written otherwise, but a broken file may begin with one.
        cut = merge.find(" ", 1) if isinstance(merge, str) else -1
        if not isinstance(merge, str) or cut < 0:
            raise BadModelFile(
                f"tokenizer.ggml.merges: entry {rank} is {str(merge)[:40]!r}, not two texts with a "
                "space between them; the file is damaged"
            )
        left, right = merge[:cut], merge[cut + 1 :]
        if left in ids and right in ids and left + right in ids:
            pairs.setdefault((left, right))
    return list(pairs)
