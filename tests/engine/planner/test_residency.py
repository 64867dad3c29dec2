"""Where the bytes of a streamed model go: pinned, ring, experts, disk. Not here: the sentences about it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from engine.budget import MIB, Machine
from engine.footprint import Experts, ModelFacts, experts_of, kind_of
from engine.gguf.reader import TensorInfo, read_gguf
from engine.models.shape import DecoderShape
from engine.planner import Plan, PlanRequest, assess
from engine.planner.residency import LEAST_RING_BYTES, RING_BYTES, Residency, least_slots, residency
from engine.quants.registry import TYPES
from tests.tiny import tiny_llama

GIB = 1 << 30
WEIGHTS = {"embedding": 100, "attention": 400, "ffn": 1500, "experts": 0, "output": 100, "norms": 1}
# 24 layers of 64 experts of 2.65 MB, 8 of them used: a token uses 509 MB
EXPERTS = Experts(64, 8, 24, 64 * 24 * 2_650_000, 2_650_000)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    gguf = read_gguf(tiny_llama(tmp_path_factory.mktemp("m") / "m.gguf", n_ctx=8192))
    return ModelFacts.of(gguf, DecoderShape.read(gguf))


@pytest.fixture
def dense(tiny: ModelFacts) -> ModelFacts:
    """A model of two GB, by its header."""
    return replace(tiny, weights={kind: n * MIB for kind, n in WEIGHTS.items()})


@pytest.fixture
def sparse(dense: ModelFacts) -> ModelFacts:
    weights = dense.weights | {"ffn": 2 * MIB, "experts": EXPERTS.n_bytes}
    return replace(dense, weights=weights, experts=EXPERTS)


def planned(facts: ModelFacts, budget: int, **request: object) -> Plan:
    machine = Machine(budget, None, 2, (0, 1), None)
    return assess(facts, machine, PlanRequest(1024, **{"load_mode": "stream"} | request))  # type: ignore[arg-type]


def test_every_byte_of_room_is_a_byte_less_from_disk(dense: ModelFacts) -> None:
    assert dense.dense_bytes == 2000 * MIB, "of the embedding only rows are read"
    for room in (RING_BYTES, 500 * MIB, 1968 * MIB):
        found = residency(dense, room)
        assert found == Residency(room - RING_BYTES, RING_BYTES, 0, 2000 * MIB - room + RING_BYTES)
    nearly = residency(dense, 1999 * MIB)
    assert (nearly.ring, nearly.stream_per_token) == (LEAST_RING_BYTES, LEAST_RING_BYTES + MIB)
    assert residency(dense, 2000 * MIB) == Residency(2000 * MIB, 0, 0, 0), "nothing to read ahead"


def test_an_embedding_that_is_the_output_too_is_read_whole(dense: ModelFacts) -> None:
    tied = replace(dense, shape=replace(dense.shape, tied=True), weights=dense.weights | {"output": 0})
    assert tied.dense_bytes == 2000 * MIB


def test_the_plan_spends_the_budget_to_the_byte(dense: ModelFacts) -> None:
    made = planned(dense, GIB)
    fixed = made.kv_bytes + made.engine_bytes + made.ring_bytes + dense.weights["norms"]
    assert made.pinned_bytes + fixed == GIB and made.verdict == "PAGES" and made.fits
    assert made.pinned_bytes + made.stream_bytes_per_token == dense.dense_bytes
    assert "are read from disk for each token" in made.reason


def test_all_pinned_but_the_embedding_reads_nothing(dense: ModelFacts) -> None:
    made = planned(dense, planned(dense, 8 * GIB).total_bytes - 50 * MIB)
    assert (made.verdict, made.stream_bytes_per_token, made.ring_bytes) == ("TIGHT", 0, 0)
    assert "row by row" in made.reason


def test_a_stream_needs_its_ring_and_then_a_page_less_context(dense: ModelFacts) -> None:
    least = planned(dense, GIB).needed_bytes
    assert planned(dense, least).fits and planned(dense, least).pinned_bytes == 0
    refused = planned(dense, least - 1)
    assert refused.verdict == "NO" and refused.max_ctx == 768
    assert "KV cache, engine and read buffers" in refused.reason and "--ctx-size 768 or" in refused.reason
    assert planned(dense, least, is_served=False).pinned_bytes > 100 * MIB, "without an API process there is more"


def test_experts_come_after_what_every_token_reads(sparse: ModelFacts) -> None:
    slots, dense_bytes = least_slots(EXPERTS), sparse.dense_bytes
    room = dense_bytes + slots + EXPERTS.cycle_bytes
    assert residency(sparse, room) == Residency(dense_bytes, slots, EXPERTS.cycle_bytes, 0)
    assert residency(sparse, room - 1) == Residency(dense_bytes, slots, EXPERTS.cycle_bytes - 1, 0)
    assert residency(sparse, 100 * GIB).expert_cache == EXPERTS.n_bytes
    short = residency(sparse, dense_bytes)
    assert short.pinned == dense_bytes - slots - RING_BYTES and short.expert_cache == 0
    assert short.stream_per_token == dense_bytes - short.pinned


def test_a_cache_below_one_token_s_experts_is_told_that_it_never_hits(sparse: ModelFacts) -> None:
    made = planned(sparse, 2 * GIB, expert_cache=300 * MIB)
    assert made.expert_cache_bytes == 300 * MIB
    assert "can never hit" in made.warnings[0] and "485 MiB; give it that, else it keeps only" in made.warnings[0]
    assert not planned(sparse, 2 * GIB, expert_cache=0).warnings
    whole = planned(sparse, 8 * GIB)
    fixed = whole.kv_bytes + whole.engine_bytes + sparse.weights["norms"] + sparse.dense_bytes + least_slots(EXPERTS)
    left = planned(sparse, fixed + 300 * MIB)
    assert left.expert_cache_bytes == 300 * MIB and left.warnings == made.warnings, "what is left is not left lying"
    row = next(row for row in planned(sparse, 2 * GIB).rows if row.name == "cycle_floor_bytes")
    assert row.value == 64 * 24 * 2_650_000 // 8 and "8 of 64 experts in 24 layers" in row.reason


def test_a_cache_that_was_asked_for_and_has_no_room_is_refused_with_the_largest_that_has(sparse: ModelFacts) -> None:
    made = planned(sparse, 2 * GIB, expert_cache=3 * GIB)
    assert made.verdict == "NO"
    most = int(re.search(r"--cache-mb (\d+) would fit", made.reason)[1])  # type: ignore[index]
    assert planned(sparse, 2 * GIB, expert_cache=most * MIB).fits
    assert not planned(sparse, 2 * GIB, expert_cache=(most + 1) * MIB).fits
    assert planned(sparse, 2 * GIB, expert_cache=3 * GIB, load_mode="auto").load_mode == "stream", "no map"
    whole = planned(sparse, 64 * GIB, expert_cache=1 << 44)
    assert (whole.expert_cache_bytes, whole.stream_bytes_per_token) == (EXPERTS.n_bytes, 0)


def test_a_cache_for_nothing_is_warned_of(dense: ModelFacts, sparse: ModelFacts) -> None:
    assert "not used, since the model has no experts" in planned(dense, GIB, expert_cache=GIB).warnings[0]
    made = assess(sparse, Machine(64 * GIB, None, 2, (0, 1), None), PlanRequest(1024, expert_cache=GIB))
    assert made.load_mode == "resident" and "since the load mode is resident" in made.warnings[0]


def test_experts_are_found_by_their_names() -> None:
    q4, f32 = TYPES["Q4_0"], TYPES["F32"]
    tensors = [
        TensorInfo(f"blk.{layer}.ffn_{part}_exps.weight", (64, 32, 16), q4, 0, 16 * 32 * 36, 32 * 16, 64)
        for layer in range(3) for part in ("gate", "up", "down")
    ]  # fmt: skip
    router = TensorInfo("blk.0.ffn_gate_inp.weight", (64, 16), f32, 0, 64 * 16 * 4, 16, 64)
    found = experts_of([*tensors, router], 4)
    assert found == Experts(16, 4, 3, 9 * 16 * 32 * 36, 3 * 32 * 36) and found.cycle_bytes == 3 * 4 * 3 * 32 * 36
    assert kind_of(router.name, 2) == "ffn" and experts_of([router], 4) is None
    odd = experts_of(tensors, 999)
    assert odd is not None and odd.n_used == 16, "a header may claim anything"


def test_nothing_is_streamed_in_other_modes(tmp_path: Path, dense: ModelFacts) -> None:
    made = assess(dense, Machine(64 * GIB, None, 2, (0, 1), None), PlanRequest(1024, load_mode="mmap"))
    assert (made.pinned_bytes, made.ring_bytes, made.expert_cache_bytes, made.stream_bytes_per_token) == (0, 0, 0, 0)


def test_a_mixture_that_does_not_fit_streams(sparse: ModelFacts) -> None:
    assert assess(sparse, Machine(2 * GIB, None, 2, (0, 1), None), PlanRequest(1024)).load_mode == "stream"
