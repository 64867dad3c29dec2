"""Twelve pairs of a model, a limit and a context at their border: one byte or one page decides, and decides right.

Three borders are walked over for real: the kernel holds the limit while the model is loaded and writes.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from engine.budget import MIB, Machine
from engine.footprint import ModelFacts, buffers_bytes
from engine.gguf.reader import read_gguf
from engine.models.shape import DecoderShape
from engine.planner import Plan, PlanRequest, assess
from scripts.house import ROOT
from tests.heavy import heavy_llama
from tests.tiny import tiny_llama

RESERVE = 512 * MIB
F16, Q8 = 2 * 32, 34  # bytes of 32 values


class Case(NamedTuple):
    """`cache` and `weights` are counted by hand; `at` and `below` are (verdict, load mode) with exactly the bytes that
    are needed and with one less."""

    request: PlanRequest
    cache: int
    weights: bool
    at: tuple[str, str]
    below: tuple[str, str]
    reserve: int = RESERVE
    where: Callable[[int], tuple[Machine, int]] = lambda n: (available(n), 0)


def available(n: int) -> Machine:
    return Machine(n, None, 2, (0, 1), None)


def in_a_group(n: int) -> tuple[Machine, int]:
    """A large machine, and a control group that leaves `n`."""
    return replace(available(1 << 40), memory_available=n + 5, memory_limit=n), 0


def with_a_worker_that_leaves(n: int) -> tuple[Machine, int]:
    return available(n - 300 * MIB), 300 * MIB


def cache(n_ctx: int, k: int = F16, v: int = F16, n_seqs: int = 1, layers: int = 2, heads: int = 2) -> int:
    """Heads of 32 values: a row of each is one block."""
    return n_seqs * layers * heads * (k + v) * n_ctx


RESIDENT, STREAM, NO = ("TIGHT", "resident"), ("TIGHT", "stream"), ("NO", "stream")
ROOMY_STREAM = ("OK", "stream")  # its engine part is less than a resident one's, with all weights pinned
MAPPED, TIGHT_MAP = ("PAGES", "mmap"), ("TIGHT", "mmap")
CASES = {
    "resident": Case(PlanRequest(1024), cache(1024), True, RESIDENT, ROOMY_STREAM),
    "resident, small cache types": Case(
        PlanRequest(4096, "q8_0", "q8_0"), cache(4096, Q8, Q8), True, RESIDENT, ROOMY_STREAM),
    "resident, types that differ": Case(
        PlanRequest(16384, "q8_0", "f16"), cache(16384, Q8, F16), True, RESIDENT, ROOMY_STREAM),
    "resident, three sequences": Case(
        PlanRequest(2048, parallel=3), cache(2048, n_seqs=3), True, RESIDENT, ROOMY_STREAM),
    "a copy was asked for": Case(
        PlanRequest(1024, load_mode="resident"), cache(1024), True, RESIDENT, ("NO", "resident")),
    "locked pages were asked for": Case(
        PlanRequest(1024, load_mode="mlock"), cache(1024), True, ("TIGHT", "mlock"), ("NO", "mlock")),
    "the map was asked for and its pages stay": Case(
        PlanRequest(1024, load_mode="mmap"), cache(1024), True, TIGHT_MAP, MAPPED),
    "the map was asked for and its pages go": Case(
        PlanRequest(1024, load_mode="mmap"), cache(1024), False, MAPPED, ("NO", "mmap")),
    "the least": Case(PlanRequest(1024), cache(1024), False, STREAM, NO),
    "the least, small types": Case(
        PlanRequest(40960, "q8_0", "q8_0"), cache(40960, Q8, Q8), False, STREAM, NO),
    "the least, four sequences": Case(
        PlanRequest(8192, parallel=4), cache(8192, n_seqs=4), False, STREAM, NO),
    "a control group's limit": Case(PlanRequest(1024), cache(1024), True, RESIDENT, ROOMY_STREAM, where=in_a_group),
    "a control group's limit, the least": Case(PlanRequest(1024), cache(1024), False, STREAM, NO, where=in_a_group),
    "memory that a worker gives back": Case(
        PlanRequest(1024), cache(1024), False, STREAM, NO, where=with_a_worker_that_leaves),
    "buffers past the reserve": Case(
        PlanRequest(1 << 17, ubatch_size=1 << 16), cache(1 << 17), True, RESIDENT, STREAM, reserve=0),
}  # fmt: skip


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    gguf = read_gguf(tiny_llama(tmp_path_factory.mktemp("m") / "m.gguf", n_ctx=1 << 20))
    return ModelFacts.of(gguf, DecoderShape.read(gguf))


def weights_by_hand() -> int:
    """2 layers, 128 wide, 64 for keys and values, 192 hidden, 320 tokens in and out; Q4_0, 5 norms of float32."""
    values = 2 * (128 * 128 + 2 * 64 * 128 + 128 * 128 + 3 * 192 * 128) + 2 * 320 * 128
    return values // 32 * 18 + 5 * 128 * 4


def planned(case: Case, facts: ModelFacts, budget: int, **change: int) -> Plan:
    machine, freed = case.where(budget)
    return assess(facts, machine, replace(case.request, **change), freed)


def streaming(facts: ModelFacts, request: PlanRequest, n_ctx: int) -> int:
    """A stream's least without its cache: worker, API process, margin and words; buffers; vectors; the read buffers,
    into which all of so small a model fits: everything but the embedding."""
    buffers = buffers_bytes(facts.shape, n_ctx, request.ubatch_size, 2, request.parallel)
    return (90 + 150 + 96) * MIB + 320 * 200 + buffers + weights_by_hand() - 320 * 128 // 32 * 18


@pytest.mark.parametrize("name", CASES)
def test_one_byte_decides(name: str, facts: ModelFacts) -> None:
    case = CASES[name]
    request = case.request
    reserve = case.reserve or 400 * MIB + buffers_bytes(facts.shape, request.n_ctx, request.ubatch_size, 2)
    if not case.weights and request.load_mode == "auto":
        reserve = streaming(facts, request, request.n_ctx)
    border = case.cache + reserve + (weights_by_hand() if case.weights else 0)
    for budget, wanted in ((border, case.at), (border + 1, case.at), (border - 1, case.below)):
        made = planned(case, facts, budget)
        assert (made.verdict, made.load_mode) == wanted, budget - border
        assert made.budget_bytes == budget and made.kv_bytes == case.cache


@pytest.mark.parametrize("name", ["the least", "the least, small types"])
def test_one_position_more_is_one_page_more(name: str, facts: ModelFacts) -> None:
    case = CASES[name]
    n_ctx, more = case.request.n_ctx, case.request.n_ctx + 1
    border = case.cache + streaming(facts, case.request, n_ctx)
    assert planned(case, facts, border, n_ctx=n_ctx - 255).fits, "rounded up to the same pages"
    over = planned(case, facts, border, n_ctx=more)
    assert (over.verdict, over.max_ctx) == ("NO", n_ctx)
    page = case.cache // (n_ctx // 256) + streaming(facts, case.request, n_ctx + 256)
    page -= streaming(facts, case.request, n_ctx)
    assert planned(case, facts, border + page - 1, n_ctx=more).verdict == "NO"
    assert planned(case, facts, border + page, n_ctx=more).fits


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return heavy_llama(tmp_path_factory.mktemp("heavy") / "heavy.gguf")


def really(model: Path, limit: int, claimed: int, **options: Any) -> dict[str, Any]:
    program = [sys.executable, "-m", "tests.engine.real_limits"]
    words = [*program, str(model), str(limit), str(claimed), json.dumps(options)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


OPTIONS: dict[str, Any] = {"threads": 2, "threads_batch": 2, "ubatch_size": 16, "batch_size": 16, "spec_type": "none"}


def needed(model: Path, mode: str, n_ctx: int) -> int:
    gguf = read_gguf(model)
    facts = ModelFacts.of(gguf, DecoderShape.read(gguf))
    request = PlanRequest(n_ctx, load_mode=mode, ubatch_size=16, threads=2, is_served=False)
    return assess(facts, available(1 << 40), request).needed_bytes


def test_what_is_planned_resident_loads_within_the_planned_bytes(heavy: Path) -> None:
    border = needed(heavy, "resident", 4096)
    found = really(heavy, border, border, n_ctx=4096, **OPTIONS)
    assert (found["outcome"], found["load_mode"], found["n_tokens"]) == ("runs", "resident", 4)


def test_what_is_planned_to_stream_loads_within_the_planned_bytes(heavy: Path) -> None:
    """Half of the 105 MiB fit: the kernel holds the process to what was planned."""
    border = needed(heavy, "stream", 4096) + 50 * MIB
    found = really(heavy, border, border, n_ctx=4096, **OPTIONS)
    assert (found["outcome"], found["load_mode"], found["n_tokens"]) == ("runs", "stream", 4)


def test_what_is_planned_for_the_cache_alone_loads_and_a_page_more_is_refused(heavy: Path) -> None:
    n_ctx = 65536  # a GiB of cache
    border = needed(heavy, "mmap", n_ctx)
    found = really(heavy, border, border, n_ctx=n_ctx, load_mode="mmap", **OPTIONS)
    assert (found["outcome"], found["load_mode"], found["kv_bytes"]) == ("runs", "mmap", 1 << 30)
    refused = really(heavy, border, border, n_ctx=n_ctx + 1, load_mode="mmap", **OPTIONS)
    assert refused == {"outcome": "refused", "needed_bytes": needed(heavy, "mmap", n_ctx + 256)}


def test_what_the_plan_refuses_really_finds_no_memory(heavy: Path) -> None:
    """Told of memory that is not there, the engine meets the kernel's refusal: the plan's was right."""
    limit = needed(heavy, "mmap", 65536)
    found = really(heavy, limit, 1 << 40, n_ctx=2 * 65536, **OPTIONS)
    assert found["outcome"] == "no memory"
