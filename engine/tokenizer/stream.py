"""Ids to text while they come: whole characters only, nothing of a stop string. Not here: when a request ends.

Two things are held back: the bytes of a character that is not whole yet, and text that may be the beginning of a stop
string. A pushed id returns whatever can no longer change, as early as possible.
"""

import codecs
from collections.abc import Collection, Sequence

from engine.errors import InvalidParameter
from engine.tokenizer.vocab import Vocab


class TextStream:
    """One answer's text. `stopped` is the stop string that ended it, or None."""

    def __init__(
        self, vocab: Vocab, stop: Sequence[str] = (), skip_special: bool = True, after: int | None = None,
        shown: Collection[int] = (),
    ) -> None:  # fmt: skip
        """`after` is the prompt's last id: an answer that continues a text keeps its leading space, one that begins a
        text does not. `shown` are special tokens that are not skipped. InvalidParameter for an empty stop string: it
        would end every answer before its first character."""
        if not all(stop):
            raise InvalidParameter("a stop string is empty; leave it out or give at least one character", param="stop")
        self._vocab = vocab
        self._skip_special = skip_special
        self._shown = frozenset(shown)
        self._previous = after
        # U+FFFD once for each maximal part of a character that is no character: the decoder's own rule.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # A lone surrogate cannot be written in UTF-8, so a stop string with one never comes.
        self._stops = tuple(dict.fromkeys(stop))
        self._held = ""
        self.stopped: str | None = None

    def push(self, token_id: int) -> str:
        """The text that this id completes, often all of it, sometimes none. After a stop string: nothing."""
        if self.skips(token_id):
            return ""
        raw = self._vocab.bytes_after(token_id, self._previous)
        self._previous = token_id
        return self.feed(raw)

    def skips(self, token_id: int) -> bool:
        """Whether this id is no part of the text."""
        return self._skip_special and token_id not in self._shown and self._vocab.is_special(token_id)

    def feed(self, raw: bytes, final: bool = False) -> str:
        """As push(), for bytes."""
        if self.stopped is not None:
            return ""
        self._held += self._decoder.decode(raw, final)
        if not self._stops:
            out, self._held = self._held, ""
            return out
        found = min(((at, -len(s), s) for s in self._stops if (at := self._held.find(s)) >= 0), default=None)
        if found is not None:
            self.stopped = found[2]
            cut = found[0]
        elif final:
            cut = len(self._held)
        else:
            cut = len(self._held) - self._possible()
        out = self._held[:cut]
        self._held = "" if self.stopped else self._held[cut:]
        return out

    def finish(self) -> str:
        """The rest: a half character as U+FFFD, and text that was no stop string after all."""
        return self.feed(b"", final=True)

    def _possible(self) -> int:
        """Length of the longest end of the held text that begins some stop string."""
        held = self._held
        longest = min(len(held), max(map(len, self._stops)) - 1)
        return next((n for n in range(longest, 0, -1) if any(s.startswith(held[-n:]) for s in self._stops)), 0)
