"""Tokens generated in each of the last seconds, of all answers together. Not here: means per answer (speeds.py)."""

SECONDS = 60


class Pace:
    """A ring of whole seconds of any clock that only grows; counting costs two list accesses."""

    def __init__(self) -> None:
        # One more than is told: the second that is going on.
        self._counts = [0] * (SECONDS + 1)
        self._now = 0

    def count(self, n: int, now: float) -> None:
        """So many tokens came at `now`."""
        self._move(int(now))
        self._counts[self._now % len(self._counts)] += n

    def history(self, now: float) -> list[int]:
        """The last SECONDS whole seconds before the one going on, the oldest first."""
        self._move(int(now))
        return [self._counts[second % len(self._counts)] for second in range(self._now - SECONDS, self._now)]

    def _move(self, second: int) -> None:
        for later in range(max(self._now + 1, second - SECONDS), second + 1):
            self._counts[later % len(self._counts)] = 0
        self._now = max(self._now, second)
