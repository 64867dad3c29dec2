"""docs/models.md is what was measured, and within the bounds. Not here: measuring, which comes after a new row."""

import json
from typing import Any

import pytest

from benchmarks.families import PAGE, QUANTS, RESULTS, misses, page
from tests.families import FAMILIES

ROWS: dict[str, Any] = json.loads(RESULTS.read_text())["rows"]


def test_the_page_shows_what_was_measured_of_rows_that_there_are() -> None:
    assert ROWS and set(ROWS) <= set(FAMILIES)
    assert PAGE.read_text() == page(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_as_near_to_float32_as_llama_cpp(name: str) -> None:
    assert misses(ROWS[name]) == []


def test_a_row_that_is_not_says_so() -> None:
    ours = {"top1": 0.95, "kl": 0.012}
    good: dict[str, Any] = {"transformers": [1e-4, 1e-4]} | {quant: {"ours": ours} for quant in QUANTS}
    assert misses(good) == []
    beside = good | {"Q8_0": {"ours": ours, "peer": {"top1": 0.98, "kl": 0.009}}}
    words = ["Q8_0 top-1 0.950 where llama.cpp has 0.980", "Q8_0 KL 0.01200 where llama.cpp has 0.00900"]
    assert misses(beside) == words
    assert misses(good | {"transformers": [1e-4, 2e-3]}) == ["2.0e-03 from transformers"]
