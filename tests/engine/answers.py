"""Whole answers of several sequences that are computed together, for tests that compare them. Not here: tests."""

from engine.generate import Engine
from engine.sequence import Sequence

Made = list[tuple[int, float | None, tuple[tuple[int, float], ...]]]


def all_of(e: Engine, sequences: list[Sequence]) -> tuple[list[Made], int]:
    """Of each sequence all tokens with their logprobs and rivals, and how many steps they took together."""
    made: dict[Sequence, Made] = {s: [] for s in sequences}
    n_steps = 0
    while going := [s for s in sequences if s.finish is None]:
        n_steps += 1
        for s, out in zip(going, e.step_many(going), strict=True):
            assert out.finish == s.finish or out.cancelled
            made[s] += [(one.token, one.logprob, tuple(one.top)) for one in (out, *out.more) if one.token is not None]
    for s in sequences:
        e.close(s)
    return [made[s] for s in sequences], n_steps


def without_noise(e: Engine) -> Engine:
    """The engine, whose passes all cost the same: a tiny model's takes half a millisecond, and noise would decide what
    is guessed."""
    e._times.cost = lambda rows, more, beside=0.0: 1.0  # type: ignore[method-assign]
    return e
