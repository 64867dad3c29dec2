"""Where the last ids of a text stood before in it; what followed there is the guess (prompt lookup). Not here: whether
guessing pays (meter.py), the model.

Every place is linked to the one before it that ends with the same `least` ids, newest first, as in a compressor:

    ids    7 4 9 2   …   4 9 5   …   3 4 9         least = 2
                         └─ 1st ─┘    └─ asks: where was (4, 9)? the longest common past wins, of equals the newest

A guess that reaches the end of the text goes on with itself: in "a b a b" the guess is "a b a b …".
"""

from collections.abc import Iterable

PLACES = 32  # places looked at for one guess: a text that repeats one pair for ever must not cost more and more
LONGEST = 32  # ids compared backwards; places that agree in so many are equals


class Lookup:
    """The ids of one text, growing at its end; a match is `least` ids long at least."""

    def __init__(self, ids: Iterable[int], least: int) -> None:
        assert least >= 1, least
        self._least = least
        self._ids: list[int] = []
        self._newest: dict[tuple[int, ...], int] = {}
        self._before: list[int] = []
        self.extend(ids)

    def extend(self, ids: Iterable[int]) -> None:
        """The text goes on."""
        for token in ids:
            self._ids.append(token)
            end = len(self._ids)
            key = tuple(self._ids[end - self._least :]) if end >= self._least else ()
            self._before.append(self._newest.get(key, 0) if key else 0)
            if key:
                self._newest[key] = end

    def guess(self, most: int) -> tuple[list[int], int]:
        """At most so many ids that may come next, and how many ids before them agree (0: no such place)."""
        place, end, best, longest = self._before[-1] if self._ids else 0, len(self._ids), 0, 0
        for _ in range(PLACES):
            if not place or longest >= LONGEST:
                break
            n = self._agreement(place)
            if n > longest:
                best, longest = place, n
            place = self._before[place - 1]
        if not best or most < 1:
            return [], 0
        period = end - best
        return [self._ids[best + i % period] for i in range(most)], longest

    def _agreement(self, place: int) -> int:
        """How many ids before `place` are those before the end."""
        ids, end, n = self._ids, len(self._ids), self._least
        while n < LONGEST and n < place and ids[place - 1 - n] == ids[end - 1 - n]:
            n += 1
        return n
