"""The verdict on whole-model figures and the table made of them. Not here: measuring."""

from typing import Any

import pytest

from benchmarks.bars import BARRED, bars, every_bar
from benchmarks.kernels import show
from benchmarks.limits import FOUR, HALF_WIDTH, macs_per_cycle
from benchmarks.peers import rows
from benchmarks.serve import with_ratios
from benchmarks.table import render
from engine.kernels.isa import LEVELS
from engine.quants.registry import TYPES

MACHINE = {"cpu": "a CPU", "family_model": "1/2", "cpus": 2, "isa": ["avx2"], "virtual": False}


def figures(decode: float, prefill: float = 3.0) -> dict[str, Any]:
    """A model's results: the peer makes 10 tokens per second, ours `decode` and `prefill` times as many."""
    samples: dict[tuple[str, str, str], list[float]] = {}
    for mode in ("default", "strict"):
        for test, times in (("tg64", decode), ("pp256", prefill)):
            samples[mode, test, "llama.cpp native"] = [9.0, 10.0, 90.0]
            samples[mode, test, "colibri resident"] = [10.0 * times, 1.0, 1000.0]
    for cache, speed in (("f16", 14.0), ("q8_0", 15.0)):
        samples["strict", f"tg64@{cache}", "llama.cpp native"] = [10.0]
        samples["strict", f"tg64@{cache}", "colibri resident"] = [speed]
    facts = {"date": "2026-01-01", "rounds": 5, "quiet": True, "contenders": {}, "rows": rows(samples)}
    return facts | {"bandwidth_share": 0.9, "decode_gbps": 27.0, "read_gbps": 30.0}


def verdicts(models: dict[str, Any]) -> dict[str, tuple[float | None, bool]]:
    return {bar.name: (bar.value, bar.holds) for bar in bars(models)}


def test_the_mean_is_geometric_over_all_models_and_the_least_counts_too() -> None:
    models = {name: figures(1.5) for name in BARRED} | {BARRED[1]: figures(1.05)}
    found = verdicts(models)
    assert found["decode, default, geometric mean"][0] == pytest.approx((1.5**5 * 1.05) ** (1 / 6), abs=1e-3)
    assert found["decode, default, geometric mean"][1]
    assert found["decode, strict, least"] == (1.05, False)
    assert found["q8_0 to f16 at depth 4096, smollm2"] == (pytest.approx(15 / 14, abs=1e-3), True)
    assert found["share of the read bandwidth, 1b-q8_0"] == (0.9, True)


def test_nothing_holds_while_a_model_is_not_measured() -> None:
    models = {name: figures(1.5) for name in BARRED[:-1]}
    assert verdicts(models)["decode, default, geometric mean"] == (None, False)
    assert not any(bar.holds for bar in bars({}))


def test_the_fastest_peer_counts_and_xllamacpp_counts_in_both_modes() -> None:
    found = rows({
        ("default", "tg64", "colibri resident"): [30.0], ("default", "tg64", "llama.cpp native"): [20.0],
        ("default", "tg64", "xllamacpp"): [25.0], ("strict", "tg64", "colibri resident"): [30.0],
        ("strict", "tg64", "llama.cpp native"): [20.0],
    })  # fmt: skip
    assert [r["ratio_to_fastest_peer"] for r in found if r["contender"] == "colibri resident"] == [1.2, 1.2]


def test_the_table_has_one_row_per_figure() -> None:
    text = render({"machine": MACHINE, "peers": {"models": {name: figures(1.5) for name in BARRED}}})
    assert text.count("| tg64 |") == text.count("| pp256 |") == len(BARRED)
    assert "| smollm2 | tg64 | 15.0 | 10.0 | 1.50 | 1.50 |" in text
    assert "- decode, default, geometric mean: 1.50, at least 1.30\n" in text
    assert "| smollm2 | tg64 at depth 4096, q8_0 cache | 15.0 | 10.0 |  | 1.50 |" in text


def test_kernels_and_served_speed_stand_in_the_table_as_json_gives_them_back() -> None:
    row = {
        "type": "Q4_0", "shape": "ffn up", "l2_gbps": 40.0, "memory_gbps": {"1": 15.0, "2": 25.0}, "few": {"8": 3.5},
        "mapped_gbps": {"2": 20.0}, "prefill_gmacs": {"256 rows, 1 threads": 90.0, "256 rows, 2 threads": 170.0},
    }  # fmt: skip
    kernels = {
        "date": "2026-01-01", "isa": "v3", "clock_ghz": 3.0, "read_gbps": {"1": 20.0, "2": 30.0}, "rows": [row],
        "limit_gmacs": {"Q4_0": {"one core": 120.0}},
    }  # fmt: skip
    served = [
        {"contender": "colibri resident", "median_ts": 34.0, "median_ttft_s": 0.1},
        {"contender": "llama-server", "median_ts": 17.0, "median_ttft_s": 0.2},
    ]
    serve = {"date": "2026-01-02", "rounds": 5, "contenders": {}, "rows": with_ratios(served, 40.0)}
    result = {"kernels": kernels, "serve": {"models": {"1b-q4_k_m": serve}}}
    text = render(result | {"machine": MACHINE})
    assert "| Q4_0 | 40 | 15.0 and 25.0 | 20.0 | 3.5 | 90 and 170 | 75% |" in text
    assert "| 1b-q4_k_m | colibri resident | 34.0 | 100 ms | 2.00 | 0.85 |" in text
    assert [bar.value for bar in every_bar(result) if bar.holds] == [0.85]
    line = show(row | {"memory_gbps": {1: 15.0, 2: 25.0}}, {1: 20.0, 2: 30.0}, {"Q4_0": (120.0, "loads")})
    assert "25.0 (83%)" in line and "75% of 120 (loads)" in line


def test_attention_stands_by_depth_and_q8_0_may_not_be_slower() -> None:
    rows = [
        {"what": what, "depth": depth, "type": kind, "ms": ms, "share_of_read": 0.8}
        for what in ("decode", "prompt")
        for depth, kind, ms in ((1024, "f16", 1.0), (1024, "q8_0", 1.5), (4096, "f16", 6.0), (4096, "q8_0", 4.0))
    ]
    result = {"attention": {"models": {"1b": {"date": "2026-01-01", "rounds": 5, "rows": rows}}}}
    assert "| 1b | 4096 | 6.00 (80%) | 4.00 (80%) |" in render(result | {"machine": MACHINE})
    assert [bar.value for bar in every_bar(result) if "attention" in bar.name] == [1.5]


# Floats, and types whose weights are looked up one by one.
UNBOUND = {"F32", "F16", "BF16", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M"}


def test_every_level_and_every_type_of_whole_numbers_has_a_limit() -> None:
    assert {*HALF_WIDTH, *FOUR} <= set(LEVELS)
    for name in TYPES:
        for level in LEVELS:
            assert (macs_per_cycle(name, level, amd=False) is None) == (name in UNBOUND)


def test_four_bits_are_bound_by_loads_until_two_panels_share_them() -> None:
    """By hand: twelve loads at two a cycle are 6 cycles; 8 dots and 2 joins are 5, 6.5 loads less."""
    assert macs_per_cycle("Q4_0", "v3", amd=True) == macs_per_cycle("Q4_0", "vnni", amd=True) == (256 / 6, "loads")
    assert macs_per_cycle("Q4_0", "avx512", amd=True) == (256 / 5, "multiplies")
    slow, fast = (macs_per_cycle("Q8_0", level, amd=True) for level in ("v2", "v3"))
    assert slow and fast and slow[0] < fast[0] / 1.9
    assert macs_per_cycle("F16", "v3", amd=True) is None
