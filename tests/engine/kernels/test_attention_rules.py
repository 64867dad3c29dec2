"""Windows, soft caps and sinks: against float64 softmax, the twin, and every grouping. Not here: plain attention."""

import math

import numpy as np
import pytest

from tests.engine.kernels import kv_twins as twins
from tests.engine.kernels.layers import Layer

SINKS = np.array([2.5, -30.0, 0.0, 9.0, 40.0, 1.0], np.float32)
RULES = {
    "window": {"window": 100},
    "window of one": {"window": 1},
    "window of a tile": {"window": 256},
    "window wider than a tile": {"window": 300},
    "cap": {"soft_cap": 3.0},
    "sinks": {"sinks": SINKS},
    "all": {"window": 150, "soft_cap": 2.0, "sinks": SINKS},
}


def exact(layer: Layer, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Softmax attention in float64, (rows, heads, head_dim), of rotated and scaled queries."""
    out = np.zeros(q.shape)
    age = np.arange(len(q))[:, None] - np.arange(len(q))
    seen = (age >= 0) & ((age < layer.window) if layer.window else True)
    for h in range(layer.n_heads):
        kv = h * layer.n_kv // layer.n_heads
        s = q[:, h].astype(np.float64) @ k[:, kv].T.astype(np.float64)
        s = layer.soft_cap * np.tanh(s / layer.soft_cap) if layer.soft_cap else s
        e = np.where(seen, np.exp(s), 0)
        total = e.sum(1) + (0 if layer.sinks is None else math.exp(layer.sinks[h]))
        out[:, h] = e / total[:, None] @ v[:, kv].astype(np.float64)
    return out


def split(layer: Layer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, keys and values of the last step, rotated."""
    heads = layer.turned.reshape(len(layer.turned), -1, layer.head_dim)
    n, kv = layer.n_heads, layer.n_kv
    return heads[:, :n], heads[:, n : n + kv], heads[:, n + kv :]


@pytest.mark.parametrize("rule", RULES)
def test_rules_are_softmax_attention(rule: str) -> None:
    layer = Layer(3, 32, "f32", "f32", **RULES[rule])
    got = layer.fill(layer.inputs(600), 600)
    wanted = exact(layer, *split(layer)).reshape(600, -1)
    assert np.abs(got - wanted).max() < 5e-6


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("k", "v"), [("f16", "f16"), ("q8_0", "q4_0")])
def test_rules_have_the_same_bits_in_every_grouping_and_as_the_twin(rule: str, k: str, v: str) -> None:
    layer = Layer(3, 32, k, v, **RULES[rule])
    x = layer.inputs(600)
    whole = layer.fill(x, 600)
    q, keys, values = split(layer)
    for i in (0, 99, 100, 255, 256, 399, 599):
        for kv in (0, 1):
            sinks = None if layer.sinks is None else layer.sinks[kv * 3 : kv * 3 + 3]
            wanted = twins.row(
                (k, v), q[i, kv * 3 : kv * 3 + 3], keys[: i + 1, kv], values[: i + 1, kv], layer.window,
                layer.soft_cap, sinks,
            )  # fmt: skip
            assert np.array_equal(whole[i].reshape(2, -1)[kv], wanted.ravel()), f"position {i}, kv head {kv}"
    assert np.array_equal(layer.fill(x, 64, 3), whole)
    assert np.array_equal(layer.fill(x, 7), whole)
    sequence = layer.cache.open()
    sequence.reserve(600)
    layer.run([(sequence, i, r) for i, r in enumerate(x)])
    for i in (0, 1, 98, 99, 100, 101, 254, 255, 256, 257, 410, 598):  # this is decode, one and two rows a step
        assert np.array_equal(layer.run([(sequence, i, x[i])], 2)[0], whole[i]), f"position {i}"
        assert np.array_equal(layer.run([(sequence, i + j, x[i + j]) for j in (0, 1)]), whole[i : i + 2])


@pytest.mark.parametrize("n_rows", [1, 2, 9])
def test_tiles_wholly_outside_the_window_are_not_visited(n_rows: int) -> None:
    layer = Layer(3, 32, "q8_0", "q8_0", window=100)
    x = layer.inputs(900)
    sequence = layer.cache.open()
    sequence.reserve(900)
    whole = layer.run([(sequence, i, r) for i, r in enumerate(x)])
    first = (900 - n_rows - 99) // 256
    assert first == 3
    sequence.table[:first] = 0  # reading there is a segmentation fault
    rows = [(sequence, i, x[i]) for i in range(900 - n_rows, 900)]
    for n_threads in (1, 2):
        assert np.array_equal(layer.run(rows, n_threads), whole[-n_rows:])
