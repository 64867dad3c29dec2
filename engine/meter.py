"""Whether guesses pay: how often they were right, and what a pass with more rows costs. Not here: guesses (lookup.py).

    tokens of a pass with k guesses   1 + c(m) + c(m)·c(m+1) + …      m: ids that agreed before the first guess
    its cost                          seconds of a pass with so many rows more, as measured

The k with most tokens per second is taken, 0 where none gains: with weights in memory a row more may cost half a pass,
where a pass waits for the disk sixteen cost what one does. Every pass judges the guess that was at hand, whether it was
computed or not, so that a text that becomes predictable is noticed without trying.
"""

BUCKETS = (1, 2, 3, 5, 8, 16)  # ids that agree: 1, 2, 3, 4-5, 6-8, 9-16, more
# Right guesses by bucket where nothing is known yet: SmolLM2 on 12 answers (summaries, edits, stories) of 3,400 tokens.
USUAL = (0.17, 0.5, 0.5, 0.67, 0.85, 0.85, 0.97)
USUAL_WEIGHT = 4.0  # guesses that the usual chance counts for
MEMORY = 0.95  # what counted before, at each guess: about the last twenty of a bucket matter
ROWS = (1, 2, 4, 8, 16)  # rows of a pass that are one figure: 1, 2, 3-4, 5-8, 9-16, more
# Weight of the newest time. Other work on the machine only ever makes a pass longer, so less is believed sooner.
SOONER, LATER = 0.5, 0.1
STALE = 256  # passes after which a time is taken anew
GAIN = 1.03  # less is noise


class Chances:
    """How often guesses of one text were right, by how many ids agreed before them; `usual` until they are judged."""

    def __init__(self, usual: tuple[float, ...] = USUAL) -> None:
        assert len(usual) == len(BUCKETS) + 1, usual
        self._right = [chance * USUAL_WEIGHT for chance in usual]
        self._all = [USUAL_WEIGHT] * len(usual)

    def of(self, agreed: int) -> float:
        """The chance that a guess after so many ids that agree is right."""
        bucket = _bucket(agreed, BUCKETS)
        return self._right[bucket] / self._all[bucket]

    def judge(self, agreed: int, guess: list[int], made: list[int]) -> None:
        """Compare a guess with what came, up to the first that differs."""
        for i, (guessed, token) in enumerate(zip(guess, made, strict=False)):
            bucket = _bucket(agreed + i, BUCKETS)
            self._right[bucket] = self._right[bucket] * MEMORY + (guessed == token)
            self._all[bucket] = self._all[bucket] * MEMORY + 1.0
            if guessed != token:
                break


class PassTimes:
    """Seconds of a pass by its rows, of one engine; prompts do not count."""

    def __init__(self) -> None:
        self._seconds: list[float | None] = [None] * (len(ROWS) + 1)
        self._taken = [0] * (len(ROWS) + 1)
        self._passes = 0

    def took(self, rows: int, seconds: float) -> None:
        """A pass over so many rows was measured."""
        self._passes += 1
        bucket = _bucket(rows, ROWS)
        old = self._known(bucket)
        if old is not None:
            seconds = old + (seconds - old) * (SOONER if seconds < old else LATER)
        self._seconds[bucket] = seconds
        self._taken[bucket] = self._passes

    def cost(self, rows: int, more: int, beside: float = 0.0) -> float | None:
        """A pass of rows + more, and `beside` seconds, relative to one of `rows`; None while that is not known.

        What was never tried costs what fewer rows did, so that it is tried.
        """
        base, most = _bucket(rows, ROWS), _bucket(rows + more, ROWS)
        plain = self._known(base)
        if plain is None:
            return None
        known = self._known(most)
        if known is None:
            known = max(s for s in map(self._known, range(base, most)) if s is not None)
        return max(1.0, known / plain) + beside / plain

    def _known(self, bucket: int) -> float | None:
        return None if self._passes - self._taken[bucket] > STALE else self._seconds[bucket]


def guesses_that_pay(
    chances: Chances, times: PassTimes, agreed: int, most: int, rows: int, each: float = 0.0
) -> int:  # fmt: skip
    """How many of at most `most` guesses to compute in a pass that has `rows` rows without them, one token each.

    `each`: seconds that it takes to make a guess. 0 too while the plain pass has no time: it is measured first.
    """
    best, best_rate = 0, rows * GAIN
    tokens, reach = float(rows), 1.0
    for k in range(1, most + 1):
        cost = times.cost(rows, k, k * each)
        if cost is None:
            return 0
        reach *= chances.of(agreed + k - 1)
        tokens += reach
        if tokens / cost > best_rate:
            best, best_rate = k, tokens / cost
    return best


def _bucket(n: int, borders: tuple[int, ...]) -> int:
    return next((i for i, border in enumerate(borders) if n <= border), len(borders))
