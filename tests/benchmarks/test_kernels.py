"""What the kernel benchmark times is the product it says, over the bytes it counts. Not here: how fast."""

import os

import numpy as np
import pytest

from benchmarks.kernels import FINE_SHARE, Run, activations, weights
from engine.kernels.act import REFINE
from engine.quants.registry import TYPES
from tests.blocks import dequantise


@pytest.mark.parametrize(("rows", "threads"), [(1, 1), (8, 2)])
@pytest.mark.parametrize("packed", [True, False], ids=["panels", "file rows"])
def test_a_timed_pass_computes_the_product(rows: int, threads: int, packed: bool) -> None:
    w = weights("Q8_0", 256, 128, 3, packed=packed)
    allowed = os.sched_getaffinity(0)
    with Run(w, rows, threads, times=2) as run:
        assert run.seconds() > 0
        got = run.y.copy()
        assert run.bytes == 2 * 3 * 128 * TYPES["Q8_0"].row_bytes(256)
        assert run.macs == 2 * 3 * 128 * 256 * rows
    assert os.sched_getaffinity(0) == allowed, "the caller is free again"
    x = activations(rows, 256).astype(np.float64)
    x /= np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5)
    file_rows = weights("Q8_0", 256, 128, 1, packed=False).memory.view(np.uint8).tobytes()
    want = x @ dequantise(file_rows, "Q8_0", (128, 256)).astype(np.float64).T
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()


def test_about_a_seventh_of_the_activations_carries_a_fine_half() -> None:
    tops = np.abs(activations(64, 2048)).reshape(64, -1, 32).max(axis=2)
    share = (tops > REFINE * tops.mean(axis=1, keepdims=True)).mean()
    assert abs(share - FINE_SHARE) < 0.03
