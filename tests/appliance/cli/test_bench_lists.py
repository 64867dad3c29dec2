"""llama-bench's number lists, the rows and the memory's ceiling. Not here: a measured engine (test_engine_commands)."""

import csv
import io
import json
from typing import Any

import pytest

from appliance.cli.bench_lists import numbers
from appliance.cli.bench_rows import Printer, test_name, with_samples
from appliance.cli.ceilings import read_gbps
from engine.errors import UsageError

test_name.__test__ = False  # type: ignore[attr-defined]
ROW: dict[str, Any] = {
    "model_filename": "m,\"x\".gguf", "model_type": "llama 135M Q4_1", "model_size": 1 << 20, "model_n_params": 10**6,
    "type_k": "f16", "type_v": "q8_0", "load_mode": "resident", "n_ubatch": 512, "n_threads": 2, "n_prompt": 0,
    "n_gen": 128, "n_depth": 0, "used_gbps": 15.0, "ceiling_gbps": 30.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["512"], [512]), (["1,2,4"], [1, 2, 4]), (["1-4"], [1, 2, 3, 4]), (["2-8+2"], [2, 4, 6, 8]),
        (["1-8*2"], [1, 2, 4, 8]), (["1", "4,2"], [1, 4, 2]), (["0"], [0]), (["4,4"], [4]),
    ],
)  # fmt: skip
def test_lists_and_ranges(given: list[str], found: list[int]) -> None:
    assert numbers("-p", given) == found


@pytest.mark.parametrize("part", ["", "x", "4-2", "1-8*1", "0-8*2", "1-8+0", "-1", "1--2", "1-999999999"])
def test_a_wrong_list_is_told(part: str) -> None:
    with pytest.raises(UsageError, match="-p"):
        numbers("-p", [part])


def test_means_and_deviations_of_samples() -> None:
    row = with_samples({}, [10**9, 2 * 10**9], 100)
    assert row["samples_ts"] == [100.0, 50.0] and row["avg_ts"] == 75.0 and row["avg_ns"] == 1_500_000_000
    assert with_samples({}, [10**9], 1)["stddev_ts"] == 0.0


def test_json_is_one_list_and_jsonl_one_object_per_line() -> None:
    row = with_samples(ROW, [10**9], 128)
    printers = {kind: Printer(kind) for kind in ("json", "jsonl", "csv", "md")}
    text = {kind: p.row(row) + p.row(row) + p.end() for kind, p in printers.items()}
    assert json.loads(text["json"]) == [row, row]
    assert [json.loads(line) for line in text["jsonl"].splitlines()] == [row, row]
    table = list(csv.DictReader(io.StringIO(text["csv"])))
    assert len(table) == 2 and table[0]["model_filename"] == ROW["model_filename"]
    lines = text["md"].splitlines()
    assert len(lines) == 4 and len({len(line) for line in lines}) == 1
    assert "tg128" in lines[2] and "15.0 of 30.0 (50%)" in lines[2]


def test_an_empty_bench_is_an_empty_list() -> None:
    assert json.loads(Printer("json").end()) == []


def test_names_of_tests() -> None:
    assert test_name(ROW) == "tg128"
    assert test_name({**ROW, "n_prompt": 512, "n_depth": 4096}) == "pp512+tg128 @ d4096"


def test_the_ceiling_is_a_plausible_rate() -> None:
    rate = read_gbps(2)
    assert rate is not None and 0.1 < rate < 5000
