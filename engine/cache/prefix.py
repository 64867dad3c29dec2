"""Texts that have ended, kept for the next one that begins the same. Not here: pages (pool.py), sequences (kv.py).

    kv = prefixes.open(ids, running)     a sequence that holds already what `ids` begin with, as far as anybody has it
    prefixes.keep(kv, ids)               in place of kv.close()

Keys and values of a position follow from the ids up to it and from nothing else, so who has them once has them for
every text that begins with these ids, to the bit. Kept texts lie in pages that no running sequence needs at the moment:
when one does, the text that was used least recently goes. So they take no memory of their own. Layers with a window
hold the end of a text alone: it is used again by what goes on there, not by what leaves it earlier.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.cache.kv import KvCache, KvSequence

MOST = 64  # kept texts: each costs a comparison, and its own pages at the least
LEAST = 16  # positions worth keeping

Ids = NDArray[np.int64]


@dataclass(eq=False)
class Text:
    """The ids that the positions of `kv` hold, first ones first; `kv` may hold fewer than there are ids."""

    ids: Ids
    kv: KvSequence

    def shared(self, ids: Ids) -> int:
        """Positions of `ids` that can be taken over from here."""
        return self.kv.reusable(common(ids, self.ids[: self.kv.length]))


class Prefixes:
    """What is kept of a cache's texts, the least recently used first."""

    def __init__(self, cache: KvCache) -> None:
        self.cache = cache
        self.texts: list[Text] = []
        cache.spare = self.give_up

    def open(self, ids: Ids, running: Iterable[Text] = ()) -> KvSequence:
        """A new sequence with the longest beginning of `ids` that a kept or a running text holds; KvFull as of
        `KvCache.open`."""
        best, most = self._best(ids, running)
        if best is None:
            return self.cache.open()
        kv = best.kv.fork()
        kv.truncate(most)
        return kv

    def extend(self, kv: KvSequence, ids: Ids, running: Iterable[Text]) -> bool:
        """Give a sequence that has written nothing yet a longer beginning, if there is one by now."""
        best, most = self._best(ids, running)
        if best is None or most <= kv.length:
            return False
        kv.follow(best.kv)
        kv.truncate(most)
        return True

    def _best(self, ids: Ids, running: Iterable[Text]) -> tuple[Text | None, int]:
        found = [(text.shared(ids), text) for text in (*self.texts, *running)]
        most, best = max(found, key=lambda one: one[0], default=(0, None))
        if best is None or most == 0:
            return None, 0
        if best in self.texts:
            self.texts.remove(best)
            self.texts.append(best)
        return best, most

    def keep(self, kv: KvSequence, ids: Ids) -> None:
        """`kv` ends here; it held `ids`. What another kept text holds as well is not kept twice."""
        text = Text(ids[: kv.length].copy(), kv)
        kv.leave()
        if kv.length < LEAST:
            kv.truncate(0)
            return
        for old in list(self.texts):
            n = common(text.ids, old.ids)
            if n == len(old.ids) and text.kv.reusable(n) == n:
                self._drop(old)
            elif n == len(text.ids) and old.kv.reusable(n) == n:
                self.texts.remove(old)
                self.texts.append(old)
                kv.truncate(0)
                return
        self.texts.append(text)
        if len(self.texts) > MOST:
            self._drop(self.texts[0])

    def give_up(self) -> bool:
        """Give back the pages of the text that was used least recently; False when none is kept."""
        if not self.texts:
            return False
        self._drop(self.texts[0])
        return True

    def _drop(self, text: Text) -> None:
        self.texts.remove(text)
        text.kv.truncate(0)


def common(a: Ids, b: Ids) -> int:
    """How many first ids are the same."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n
