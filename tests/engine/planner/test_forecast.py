"""Tokens per second foretold, with the limit that binds, against arithmetic by hand and figures measured before."""

from dataclasses import replace

import numpy as np
import pytest

from engine.budget import GIB, MIB, Machine, Rate
from engine.footprint import Experts, ModelFacts, attention_macs
from engine.gguf.reader import read_gguf
from engine.models.shape import DecoderShape
from engine.planner import Plan, PlanRequest, assess
from engine.planner.forecast import ATTENTION_MACS, DISK_SHARE, LAYER_S, disk_bytes, forecast, read_share, routed
from engine.planner.residency import RING_BYTES, Residency, least_slots
from tests.tiny import tiny_llama

DISK, MEMORY = 1e9, 32.1e9
NOTHING = Residency(0, 0, 0, 0)
EXPERTS = Experts(64, 8, 24, 64 * 24 * 2_650_000, 2_650_000)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    gguf = read_gguf(tiny_llama(tmp_path_factory.mktemp("m") / "m.gguf", n_ctx=8192))
    return ModelFacts.of(gguf, DecoderShape.read(gguf))


def sized(tiny: ModelFacts, dense_mib: int, bits: float, n_layers: int = 16) -> ModelFacts:
    """A model of so many MiB of multiplied weights of so many bits each."""
    weights = dict.fromkeys(tiny.weights, 0) | {"ffn": dense_mib * MIB, "embedding": 80 * MIB}
    macs = round(dense_mib * MIB * 8 / bits)
    return replace(tiny, shape=replace(tiny.shape, n_layers=n_layers), weights=weights, macs=macs)


def planned(facts: ModelFacts, budget: int, load_mode: str = "stream", **request: object) -> Plan:
    machine = Machine(budget, None, 2, (0, 1), None, memory_rate=Rate(MEMORY, "by hand", "measured"),
                      disk_rate=Rate(DISK, "by hand", "measured"))  # fmt: skip
    return assess(facts, machine, PlanRequest(1024, load_mode=load_mode, **request))  # type: ignore[arg-type]


# MiB that a token multiplies with and bits of each weight, of the 1b files; tok/s that benchmarks/ measured for them.
@pytest.mark.parametrize(("mib", "bits", "tok_s"), [
    (570, 4.5, 45.5), (636, 4.86, 40.5), (838, 6.56, 33.0), (1083, 8.5, 29.1), (258, 2.06, 83.3),
])  # fmt: skip
def test_what_was_measured_resident_is_foretold_within_a_fifth(
    tiny: ModelFacts, mib: int, bits: float, tok_s: float
) -> None:
    made = planned(sized(tiny, mib, bits), 16 * GIB, "resident")
    assert made.tok_s == pytest.approx(tok_s, rel=0.2) and (made.bound, made.fit) == ("memory", "resident")
    assert (made.ram_bytes_per_token, made.disk_bytes_per_token) == (mib * MIB, 0)


# Of all sequences together; measured for the 4-bit file.
@pytest.mark.parametrize(("n", "tok_s", "bound"), [(8, 164.5, "compute"), (16, 194.6, "compute")])
def test_several_sequences_together_are_foretold_too(tiny: ModelFacts, n: int, tok_s: float, bound: str) -> None:
    made = planned(sized(tiny, 636, 4.86), 16 * GIB, "resident", parallel=n)
    assert made.tok_s == pytest.approx(tok_s, rel=0.2) and made.bound == bound


def test_a_stream_is_bound_by_the_disk_and_what_is_missing(tiny: ModelFacts) -> None:
    facts = sized(tiny, 2100, 4.86)
    made = planned(facts, round(1.5 * GIB))
    assert made.disk_bytes_per_token == made.stream_bytes_per_token == 2100 * MIB - made.pinned_bytes
    assert made.tok_s == pytest.approx(DISK * DISK_SHARE / made.stream_bytes_per_token) and made.bound == "disk"
    rows = {row.name: row for row in made.rows}
    assert "the disk binds" in rows["tok_s"].reason and rows["disk_bytes_per_s"].provenance == "measured"
    many = planned(facts, round(1.5 * GIB), parallel=8)
    assert many.tok_s > 6 * made.tok_s, "the weights are read once for all eight"


def test_nearly_all_pinned_is_bound_by_memory_again(tiny: ModelFacts) -> None:
    facts = sized(tiny, 2100, 4.86)
    all_of_it = planned(facts, 8 * GIB)
    fixed = all_of_it.kv_bytes + all_of_it.engine_bytes + facts.weights["norms"]
    made = planned(facts, fixed + 2090 * MIB)
    reading_s = 2100 * MIB / (MEMORY * read_share(facts)) + 16 * LAYER_S
    assert made.tok_s == pytest.approx(1 / reading_s) and made.bound == "memory"
    assert made.stream_bytes_per_token == made.ring_bytes + 10 * MIB == 26 * MIB


@pytest.mark.parametrize(("pinned", "fit"), [(700, "streams"), (699, "hopeless")])
def test_under_a_third_in_memory_is_hopeless_and_said_loudly(tiny: ModelFacts, pinned: int, fit: str) -> None:
    facts = sized(tiny, 2100, 4.86)
    least = planned(facts, 8 * GIB)
    fixed = least.kv_bytes + least.engine_bytes + RING_BYTES + facts.weights["norms"]
    made = planned(facts, fixed + pinned * MIB)
    assert (made.pinned_bytes, made.fit, made.verdict) == (pinned * MIB, fit, "PAGES")
    assert (fit == "hopeless") == ("under a third" in made.reason) == (made.reason in made.warnings)


def test_a_map_that_does_not_fit_reads_all_of_it_for_each_token(tiny: ModelFacts) -> None:
    facts = sized(tiny, 2100, 4.86)
    made = planned(facts, 2 * GIB, "mmap")
    assert made.disk_bytes_per_token == 2100 * MIB and made.bound == "disk" and made.fit == "streams"
    assert planned(facts, 4 * GIB, "mmap").disk_bytes_per_token == 0


def test_of_experts_what_a_token_needs_decides(tiny: ModelFacts) -> None:
    dense = sized(tiny, 300, 4.86, n_layers=24)
    facts = replace(dense, weights=dense.weights | {"experts": EXPERTS.n_bytes}, experts=EXPERTS)
    made = planned(facts, 2 * GIB)
    hits = made.expert_cache_bytes / EXPERTS.n_bytes
    assert made.fit == "streams" and made.disk_bytes_per_token == round(EXPERTS.cycle_bytes * (1 - hits))
    assert made.ram_bytes_per_token == 300 * MIB + EXPERTS.cycle_bytes
    cut = planned(facts, GIB)
    assert 0 < cut.expert_cache_bytes < EXPERTS.cycle_bytes == cut.disk_bytes_per_token
    assert cut.cycle_floor_bytes == EXPERTS.cycle_bytes
    row = next(row for row in cut.rows if row.name == "expert_cache_bytes")
    assert "less than one token uses" in row.reason


def test_a_cache_of_experts_hits_by_its_share_and_below_the_cycle_never(tiny: ModelFacts) -> None:
    facts = replace(tiny, weights=tiny.weights | {"experts": EXPERTS.n_bytes}, experts=EXPERTS)
    assert routed(facts, 1, EXPERTS.cycle_bytes - 1) == routed(facts, 1) == EXPERTS.cycle_bytes
    assert routed(facts, 1, EXPERTS.n_bytes // 2) == EXPERTS.cycle_bytes // 2
    assert routed(facts, 1, 2 * EXPERTS.n_bytes) == routed(tiny, 1, GIB) == 0
    eight = disk_bytes(facts, 8, "stream", NOTHING, False)
    assert eight == pytest.approx(EXPERTS.n_bytes * (1 - (56 / 64) ** 8)), "eight rows share experts"


def test_what_earlier_runs_used_decides_what_a_cache_hits(tiny: ModelFacts) -> None:
    """Half of each layer's experts get three quarters of the uses; drawn as often as a long run would."""
    facts = replace(tiny, weights=tiny.weights | {"experts": EXPERTS.n_bytes}, experts=EXPERTS)
    heat = [[3.0 if e % 2 else 1.0 for e in range(64)] for _ in range(24)]
    size, rng = EXPERTS.largest_bytes, np.random.default_rng(3)
    n_slots = 24 * 32 // 2  # a quarter of all experts, all of them of the hotter half
    cached = n_slots * size - least_slots(EXPERTS)
    chance = np.array(heat) * 8 / 128
    held = np.zeros((24, 64), bool)
    held.reshape(-1)[np.argsort(-chance.reshape(-1), kind="stable")[:n_slots]] = True
    for n_seqs in (1, 8):
        drawn = (rng.random((500, n_seqs, 24, 64)) < chance).any(axis=1)
        missed = (drawn & ~held).sum() / 500 * size
        assert routed(facts, n_seqs, cached, heat) == pytest.approx(missed, rel=0.02)
    assert routed(facts, 1, cached, heat) < routed(facts, 1, cached), "alike, a quarter would hit"
    assert 0.5 < routed(facts, 1, EXPERTS.cycle_bytes // 2, heat) / EXPERTS.cycle_bytes < 0.95, "the hottest stay"
    assert routed(facts, 1, 0, heat) == pytest.approx(EXPERTS.cycle_bytes)
    told = planned(sized(facts, 300, 4.86), 2 * GIB, heat=heat)
    assert told.disk_bytes_per_token < planned(sized(facts, 300, 4.86), 2 * GIB).disk_bytes_per_token
    row = next(row for row in told.rows if row.name == "disk_bytes_per_token")
    assert "as earlier runs have used them" in row.reason


@pytest.mark.parametrize("kind", ["rotating", "network"])
def test_a_disk_that_is_slow_by_kind_is_named(tiny: ModelFacts, kind: str) -> None:
    facts = sized(tiny, 2100, 4.86)
    machine = Machine(round(1.5 * GIB), None, 2, (0, 1), None, disk_kind=kind)
    made = assess(facts, machine, PlanRequest(1024, load_mode="stream"))
    assert f"on a {kind} disk" in made.warnings[0] and "the disk's speed assumed" in made.reason
    whole = assess(facts, replace(machine, memory_available=8 * GIB), PlanRequest(1024, load_mode="stream"))
    assert not whole.warnings, "nothing is read from it"


def test_memory_that_is_ours_already_is_room(tiny: ModelFacts) -> None:
    machine = Machine(600 * MIB, None, 2, (0, 1), None)
    mine = replace(machine, own_bytes=80 * MIB)
    request = PlanRequest(1024)
    assert assess(tiny, mine, request).budget_bytes == 680 * MIB
    assert "80 MiB that are ours already" in assess(tiny, mine, request).budget_reason
    assert assess(tiny, replace(mine, memory_limit=650 * MIB), request).budget_bytes == 650 * MIB


def test_the_private_peak_counts_what_the_load_mode_holds(tiny: ModelFacts) -> None:
    facts = sized(tiny, 500, 4.86)
    resident, mapped, stream = (planned(facts, 8 * GIB, mode) for mode in ("resident", "mmap", "stream"))
    assert resident.private_bytes - mapped.private_bytes == 500 * MIB, "the embedding stays in the file"
    assert stream.private_bytes == resident.private_bytes, "all of it is pinned"
    half = planned(facts, 700 * MIB)
    assert half.private_bytes == mapped.private_bytes + half.pinned_bytes + half.ring_bytes


def test_a_context_costs_its_multiplications_and_a_windowed_layer_those_of_its_window(tiny: ModelFacts) -> None:
    facts = sized(tiny, 636, 4.86)
    shape = facts.shape
    wide = shape.n_heads * (shape.head_dim + shape.v_dim)
    assert attention_macs(shape, 4096) == 16 * 4096 * wide
    assert attention_macs(replace(shape, windows=(512, 0) * 8), 4096) == (8 * 512 + 8 * 4096) * wide
    machine = Machine(16 * GIB, None, 2, (0, 1), None, memory_rate=Rate(MEMORY, "by hand", "measured"))
    made = [forecast(facts, machine, 2, 4, "resident", NOTHING, False, depth) for depth in (0, 4096)]
    seconds = 4 * 16 * 4096 * wide / (2 * ATTENTION_MACS)
    assert 4 / made[1].tok_s - 4 / made[0].tok_s == pytest.approx(seconds)
