"""How far an engine's next-token distributions are from the exact ones, and where its first choice differs.

A distribution is what engines report: the most likely tokens as (id, log-probability) plus everything else in one
bucket. Not here: the exact forward (tests/reference.py), where distributions come from (benchmarks/accuracy.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Top = Sequence[tuple[int, float]]


def log_softmax(logits: NDArray[Any]) -> F64:
    """Row-wise log-probabilities in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return np.asarray(wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True)))


def kl(exact: F64, top: Top) -> float:
    """KL(exact || reported) in nats over the reported tokens plus a rest bucket.

    Merging tokens into a bucket can only lower a divergence, equally for every engine that reports as many tokens.
    """
    ids = np.array([i for i, _ in top])
    theirs = np.array([p for _, p in top], np.float64)
    ours = exact[ids]
    p = np.exp(ours)
    rest_p, rest_q = max(1.0 - p.sum(), 1e-12), max(1.0 - np.exp(theirs).sum(), 1e-12)
    return float((p * (ours - theirs)).sum() + rest_p * np.log(rest_p / rest_q))


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Position where first choices differ; `gap` = how much likelier the engine finds its own choice (nats)."""

    position: int
    expected: int
    chosen: int
    gap: float


def disagreements(expected: Sequence[int], tops: Sequence[Top]) -> list[Disagreement]:
    """Positions whose likeliest token is not the expected one. A token the engine does not report has gap inf."""
    found = []
    for i, (want, top) in enumerate(zip(expected, tops, strict=True)):
        if top[0][0] != want:
            found.append(Disagreement(i, want, top[0][0], top[0][1] - dict(top).get(want, -np.inf)))
    return found


def exact_tops(log_probs: F64, k: int) -> list[list[tuple[int, float]]]:
    """The exact distribution in the form engines report, so that it can be compared the same way."""
    order = np.argsort(-log_probs, axis=-1, kind="stable")[:, :k]
    return [[(int(i), float(row[i])) for i in best] for row, best in zip(log_probs, order, strict=True)]
