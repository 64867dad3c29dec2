"""Guesses from the text so far, against a search that looks everywhere. Not here: whether they pay (test_meter.py)."""

import random

import pytest

from engine.lookup import LONGEST, PLACES, Lookup


def searched(ids: list[int], least: int, most: int) -> tuple[list[int], int]:
    """The same by trying every place; of equals the newest."""
    longest, best = 0, 0
    for place in range(1, len(ids)):
        n = 0
        while n < min(LONGEST, place) and ids[place - 1 - n] == ids[-1 - n]:
            n += 1
        if n >= max(longest, least):
            longest, best = n, place
    guess: list[int] = []
    for i in range(most if best else 0):
        guess.append((ids + guess)[best + i])
    return guess, longest


@pytest.mark.parametrize("least", [1, 2, 3, 5])
@pytest.mark.parametrize("n_words", [2, 5, 40])
def test_the_guess_is_what_followed_the_longest_match(least: int, n_words: int) -> None:
    rng = random.Random(f"{least} {n_words}")
    n_matched = 0
    for _ in range(60):
        # Few places per pair, or the newest PLACES hide an older and longer match.
        ids = rng.choices(range(n_words), k=rng.randrange(1, PLACES))
        lookup = Lookup(ids[: len(ids) // 2], least)
        lookup.extend(ids[len(ids) // 2 :])
        got = lookup.guess(7)
        assert got == searched(ids, least, 7), ids
        n_matched += got[1] > 0
    assert n_matched > 5 or n_words**least > 60


def test_a_text_that_repeats_itself_goes_on_repeating() -> None:
    lookup = Lookup([9, 9, 4, 5, 6, 4, 5], 1)
    assert lookup.guess(7) == ([6, 4, 5, 6, 4, 5, 6], 2)


def test_a_newer_place_wins_over_an_older_one_of_the_same_length() -> None:
    assert Lookup([1, 2, 7, 3, 2, 8, 4, 2], 1).guess(1) == ([8], 1)


def test_an_older_place_wins_when_more_agrees() -> None:
    assert Lookup([1, 2, 7, 3, 2, 8, 1, 2], 1).guess(1) == ([7], 2)


def test_nothing_is_guessed_without_a_match_or_room() -> None:
    assert Lookup([], 1).guess(4) == ([], 0)
    assert Lookup([1], 1).guess(4) == ([], 0)
    assert Lookup([1, 2, 3], 1).guess(4) == ([], 0)
    assert Lookup([1, 2, 1], 2).guess(4) == ([], 0)
    assert Lookup([1, 2, 1], 1).guess(0) == ([], 0)


def test_one_pair_over_and_over_costs_no_more_the_longer_it_gets() -> None:
    """Counted, not timed: how often the ids behind a place are looked at."""
    lookup = Lookup([1, 2] * 5000, 1)
    looks = 0
    inner = lookup._agreement

    def counted(place: int) -> int:
        nonlocal looks
        looks += 1
        return inner(place)

    lookup._agreement = counted  # type: ignore[method-assign]
    assert lookup.guess(4) == ([1, 2, 1, 2], LONGEST)
    assert looks <= PLACES
