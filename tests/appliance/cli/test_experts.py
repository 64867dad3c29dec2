"""inspect, plan, run and bench with a model of experts. Not here: what it computes (tests/engine/models)."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.gguf.reader import read_gguf
from tests.appliance.cli.shell import inside
from tests.tiny_moe import tiny_qwen3moe


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3moe(tmp_path_factory.mktemp("models") / "experts.gguf", quant="Q8_0", n_experts=16, n_used=4)


def answered(*words: str) -> Any:
    done = inside(*words)
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_inspect_says_that_it_runs_and_how_many_experts(model: Path) -> None:
    found = answered("inspect", str(model), "--json")
    assert found["supported"] and found["architecture"] == "qwen3moe"
    assert (found["shape"]["n_experts"], found["shape"]["n_used"], found["shape"]["n_ff_exp"]) == (16, 4, 96)


def test_plan_counts_the_experts_apart(model: Path) -> None:
    weights = answered("plan", str(model), "--json")["weights"]
    assert weights["experts"] == 2 * 16 * 3 * 128 * 96 * 34 // 32
    assert weights["ffn"] == 2 * 128 * 16 * 4, "the routers"


@pytest.mark.parametrize("load_mode", ["resident", "mmap"])
def test_run_answers_the_same_in_both_layouts_and_with_guesses(model: Path, load_mode: str) -> None:
    words = ("run", "-m", str(model), "--raw", "-p", "the bird " * 9, "-n", "40", "--temp", "0", "--json")
    plain = answered(*words, "-t", "1", "-lm", "mmap", "--spec-type", "none")
    found = answered(*words, "-t", "2", "-lm", load_mode, "--spec-type", "ngram-simple")
    assert found["tokens"] == plain["tokens"] and found["stats"]["architecture"] == "qwen3moe"


def test_a_stream_s_cache_is_as_large_as_asked_for_and_its_uses_are_remembered(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLIBRI_DATA_DIR", str(tmp_path))
    stream = ("-lm", "stream", "-c", "512")
    rows = {row["name"]: row for row in answered("plan", str(model), *stream, "--cache-mb", "1", "--json")["rows"]}
    assert (rows["expert_cache_bytes"]["value"], rows["expert_cache_bytes"]["provenance"]) == (1 << 20, "operator")
    assert "taken to be used alike" in rows["disk_bytes_per_token"]["reason"]
    words = ("run", "-m", str(model), "--raw", "-p", "the bird", "-n", "20", "--temp", "0", "--json", *stream)
    found = [answered(*words, "--cache-mb", mb) for mb in ("0", "1", "auto")]
    assert found[0]["tokens"] == found[1]["tokens"] == found[2]["tokens"]
    none, some, whole = (run["stats"]["answer"]["expert_misses"] for run in found)
    assert none > some >= whole
    rows = {row["name"]: row for row in answered("plan", str(model), *stream, "--json")["rows"]}
    assert "as earlier runs have used them" in rows["disk_bytes_per_token"]["reason"]


def test_bench_counts_only_the_experts_that_a_token_uses(model: Path) -> None:
    (row,) = answered("bench", "-m", str(model), "-p", "0", "-n", "4", "-r", "2", "-t", "1", "-o", "json")
    tensors = read_gguf(model).tensors.values()
    read = sum(t.n_bytes for t in tensors if "_exps" not in t.name and t.name != "token_embd.weight")
    read += sum(t.n_bytes for t in tensors if "_exps" in t.name) * 4 // 16
    cache = 3 * 2 * 2 * 2 * 32 * 2  # positions, layers, K and V, heads, values, bytes
    assert row["used_gbps"] == pytest.approx((read + cache) * row["avg_ts"] / 1e9, rel=0.02, abs=0.001)
