"""Answers that repeat themselves: seen exactly when they do, judged by brute force, and not in texts that are meant."""

import json
import random
import sys
from pathlib import Path

import numpy as np

from engine.loops import LEAST_TOKENS, LEAST_TURNS, LONGEST, LoopWatch


def end(ids: list[int]) -> tuple[int, int] | None:
    """After how many tokens a loop was seen, and its period."""
    watch = LoopWatch()
    for n, token in enumerate(ids, 1):
        if (loop := watch.push(token)) is not None:
            return n, loop.period
    return None


def by_hand(ids: list[int]) -> tuple[int, int] | None:
    """The same, by comparing whole tails: token n and those before it against what stands a period earlier."""
    for n in range(1, len(ids) + 1):
        for period in range(1, LONGEST + 1):
            need = max(LEAST_TOKENS, LEAST_TURNS * period)
            if n >= need + period and ids[n - need : n] == ids[n - need - period : n - period]:
                return n, period
    return None


def test_a_loop_is_seen_at_the_token_that_completes_it() -> None:
    draw = random.Random(5)
    for period in (1, 2, 3, 7, 31, 32, 33, 100):
        start = [draw.randrange(50) for _ in range(draw.randrange(40))]
        phrase = [draw.randrange(50) for _ in range(period)]
        ids = start + phrase * (max(LEAST_TOKENS, LEAST_TURNS * period) // period + 3)
        found = end(ids)
        assert found == by_hand(ids) and found is not None
        assert found[1] <= period


def test_a_phrase_that_holds_itself_twice_is_seen_by_its_whole_period() -> None:
    phrase = [1, 2, 3, 4, 5, 6, 7, 8, 9] * 2 + [11]
    ids = phrase * 30
    assert end(ids) == by_hand(ids) == (LEAST_TOKENS + len(phrase), len(phrase))


def test_the_watch_sees_loops_after_any_number_of_tokens() -> None:
    draw = np.random.default_rng(1)
    for n in (4090, 4096, 4200, 9000):
        ids = [int(i) for i in draw.integers(0, 1 << 40, n)] + [1, 2, 3] * 200
        assert end(ids) == (n + 3 + LEAST_TOKENS, 3)


def test_texts_that_are_meant_are_no_loops() -> None:
    table = "\n".join(f"| {n:4d} | {'yes' if n % 3 else 'no'} | 0 | 0 | 0 | 0 |" for n in range(2000))
    rows = json.dumps([{"id": n, "value": 0, "tags": [], "note": None} for n in range(2000)], indent=2)
    ruler = ("-" * 200 + "\n" + "# a heading\n") * 3
    code = (Path(sys.modules["json"].__file__ or "").parent / "decoder.py").read_text()
    zeroes = "[" + "0," * 120 + "0]"
    for meant in (table, rows, ruler, code, zeroes):
        assert end(list(meant.encode())) is None  # a token for each byte is the hardest case
