"""Sees an answer that repeats itself word for word without an end. Not here: what follows (appliance/session.py).

A model of too few bits, or one that always takes the likeliest token, can fall into a phrase that makes itself the
likeliest next one; nothing but the token limit ends it then. Exact: a loop is a tail of the answer in which each token
equals the one a period before it, for so long that no text is meant that way.
"""

from dataclasses import dataclass

import numpy as np

LONGEST = 256
"""The longest period, in tokens, that is looked for."""
LEAST_TOKENS, LEAST_TURNS = 256, 8
"""So many tokens, and so many whole periods, have to repeat. Rulers of dashes, rows of zeroes and tables of equal
lines stay below one of the two."""
_ROOM = 4096


@dataclass(frozen=True, slots=True)
class Loop:
    """`period` tokens came again and again, `tokens` of them after the first time."""

    period: int
    tokens: int

    def json(self) -> dict[str, int]:
        """As answers show it; `repeats` are whole periods, the first one included."""
        return {"period_tokens": self.period, "repeats": self.tokens // self.period + 1}


class LoopWatch:
    """Takes the answer's token ids one by one; a prompt that repeats itself is nobody's fault and not looked at."""

    def __init__(self) -> None:
        self._newest_first = np.full(_ROOM + LONGEST, -1, np.int64)
        self._at = _ROOM
        self._run = np.zeros(LONGEST, np.int64)
        periods = np.arange(1, LONGEST + 1)
        self._need = np.maximum(LEAST_TOKENS, LEAST_TURNS * periods)

    def push(self, token: int) -> Loop | None:
        """The loop that this token completes, the one of the shortest period."""
        if self._at == 0:
            self._newest_first[_ROOM:] = self._newest_first[:LONGEST].copy()
            self._at = _ROOM
        before = self._newest_first[self._at : self._at + LONGEST]
        self._run += 1
        self._run *= before == token
        self._at -= 1
        self._newest_first[self._at] = token
        found = np.flatnonzero(self._run >= self._need)
        return Loop(int(found[0]) + 1, int(self._run[found[0]])) if len(found) else None
