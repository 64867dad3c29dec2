"""Plans at their borders: one byte less memory changes the mode or the verdict, and the verdict names the way out."""

from dataclasses import replace
from pathlib import Path

import pytest

from engine.budget import MIB, Machine, threads_for
from engine.errors import DoesNotFit, UsageError
from engine.footprint import ModelFacts, buffers_bytes
from engine.gguf.reader import GgufFile, read_gguf
from engine.models.shape import DecoderShape
from engine.planner import Plan, PlanRequest, assess, plan
from tests.families.stored import write
from tests.tiny import tiny_llama

RESERVE = 512 * MIB
# 2 layers x 2 KV heads x 32 values, f16, keys and values
PER_POSITION = 2 * 2 * 32 * 2 * 2


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> GgufFile:
    return read_gguf(tiny_llama(tmp_path_factory.mktemp("plan") / "m.gguf", n_ctx=100_000))


def machine(available: int = 1 << 34, **change: object) -> Machine:
    whole = Machine(available, None, 4, (0, 1, 2, 3, 4, 5, 6, 7), None)
    return replace(whole, **change)  # type: ignore[arg-type]


def weights_of(gguf: GgufFile) -> int:
    return sum(t.n_bytes for t in gguf.tensors.values())


def least_stream(gguf: GgufFile, n_ctx: int, threads: int = 4) -> int:
    """By hand: worker, API process and margin, 200 bytes for each word, buffers, vectors; all that is multiplied fits
    into the ring."""
    shape = DecoderShape.read(gguf)
    facts = ModelFacts.of(gguf, shape)
    multiplied = facts.weights_bytes - facts.weights["embedding"]
    return (90 + 150 + 96) * MIB + 200 * 320 + buffers_bytes(shape, n_ctx, 512, threads) + multiplied


def planned(gguf: GgufFile, available: int = 1 << 34, **request: object) -> Plan:
    return plan(gguf, DecoderShape.read(gguf), machine(available), PlanRequest(**request))  # type: ignore[arg-type]


@pytest.mark.parametrize(("asked", "taken"), [(1, 256), (256, 256), (257, 512), (5000, 5120)])
def test_the_context_is_rounded_up_to_pages_aloud(gguf: GgufFile, asked: int, taken: int) -> None:
    made = planned(gguf, n_ctx=asked)
    row = next(row for row in made.rows if row.name == "n_ctx")
    assert made.n_ctx == row.value == taken and row.provenance == "operator"
    assert ("rounded up" in row.reason) == (asked != taken)
    assert made.kv_bytes == taken * PER_POSITION


@pytest.mark.parametrize("n_ctx", [2048, 16384])
@pytest.mark.parametrize(("kv_type", "block"), [("f32", 128), ("f16", 64), ("q8_0", 34), ("q4_0", 18)])
@pytest.mark.parametrize("parallel", [1, 3])
def test_the_cache_is_the_closed_formula_to_the_byte(
    gguf: GgufFile, n_ctx: int, kv_type: str, block: int, parallel: int
) -> None:
    """2 (keys, values) x 2 layers x 2 KV heads x 32 values x positions x bytes of a value, a block has 32 values."""
    made = planned(gguf, n_ctx=n_ctx, type_k=kv_type, type_v=kv_type, parallel=parallel)
    assert made.kv_bytes == 2 * 2 * 2 * 32 * n_ctx * block // 32 * parallel
    assert made.kv_bytes_per_token == 2 * 2 * 2 * block


@pytest.mark.parametrize(("ubatch_size", "kept"), [(512, 1280), (64, 768)])
@pytest.mark.parametrize("parallel", [1, 3])
def test_a_layer_with_a_window_keeps_what_a_step_looks_at(
    ubatch_size: int, kept: int, parallel: int, tmp_path: Path
) -> None:
    """Of 7 layers 6 see 24 positions: those, the rows of a step and 256 to go back, from anywhere in a page of 256."""
    write("gemma3", tmp_path / "m.gguf")
    made = planned(read_gguf(tmp_path / "m.gguf"), n_ctx=16384, ubatch_size=ubatch_size, parallel=parallel)
    assert made.kv_bytes == (6 * kept + 16384) * 2 * 2 * 32 * 2 * parallel
    assert made.kv_bytes_per_token == 2 * 2 * 32 * 2
    reasons = {row.name: row.reason for row in made.rows}
    assert "6 of the layers keep a window of 24" in reasons["kv_bytes"]
    assert reasons["kv_bytes_per_token"].startswith("1 layer without a window x 2 KV heads x 32 values")


def test_without_a_number_the_context_is_the_trained_one_up_to_8192(gguf: GgufFile, tmp_path: Path) -> None:
    assert planned(gguf).n_ctx == 8192
    short = read_gguf(tiny_llama(tmp_path / "s.gguf", n_ctx=700))
    assert planned(short).n_ctx == 768


def test_without_a_number_less_context_keeps_all_weights_in_memory(gguf: GgufFile) -> None:
    made = planned(gguf, weights_of(gguf) + RESERVE + 3000 * PER_POSITION)
    assert (made.n_ctx, made.load_mode) == (2816, "resident")
    assert "leave too little memory" in made.rows[0].reason


def test_a_stream_takes_a_tenth_for_its_cache_and_what_a_conversation_needs(gguf: GgufFile) -> None:
    facts = ModelFacts.of(gguf, DecoderShape.read(gguf))
    # 16 MiB for each page, 4 GiB of weights
    deep = replace(facts, shape=replace(facts.shape, n_layers=256), weights=facts.weights | {"ffn": 4096 * MIB})
    for budget, n_ctx in ((4096, 6400), (2048, 3072), (1024, 2048), (480, 1536)):
        made = assess(deep, machine(budget * MIB), PlanRequest())
        assert (made.n_ctx, made.load_mode, made.fits) == (n_ctx, "stream", True), budget
    nothing = assess(deep, machine(400 * MIB), PlanRequest())
    assert not nothing.fits and "would fit" in nothing.reason


def test_without_a_number_a_small_machine_gets_less_context_and_is_told(gguf: GgufFile) -> None:
    made = planned(gguf, RESERVE + 1300 * PER_POSITION, load_mode="mmap")
    assert (made.n_ctx, made.load_mode) == (1280, "mmap")
    assert "leave too little memory" in made.rows[0].reason


def test_past_the_trained_length_is_a_warning_only(gguf: GgufFile) -> None:
    assert any("trained on 100,000" in words for words in planned(gguf, n_ctx=100_001).warnings)
    assert planned(gguf, n_ctx=100_000).warnings == ()


def test_auto_takes_resident_to_the_last_byte_then_streams(gguf: GgufFile) -> None:
    exact = weights_of(gguf) + 1024 * PER_POSITION + RESERVE
    assert planned(gguf, exact, n_ctx=1024).load_mode == "resident"
    made = planned(gguf, exact - 1, n_ctx=1024)
    assert made.load_mode == "stream" and made.fits and made.stream_bytes_per_token == 0


def test_a_map_may_page_and_says_so(gguf: GgufFile) -> None:
    exact = weights_of(gguf) + 1024 * PER_POSITION + RESERVE
    assert planned(gguf, exact, n_ctx=1024, load_mode="mmap").verdict == "TIGHT"
    made = planned(gguf, exact - 1, n_ctx=1024, load_mode="mmap")
    assert made.fits and made.needed_bytes == exact - weights_of(gguf)
    assert "read from disk" in made.warnings[0] and made.verdict == "PAGES" and made.spare_bytes == -1


def test_a_map_fits_to_the_last_byte_and_then_a_stream_still_does(gguf: GgufFile) -> None:
    exact = 1024 * PER_POSITION + RESERVE
    assert planned(gguf, exact, n_ctx=1024, load_mode="mmap").load_mode == "mmap"
    with pytest.raises(DoesNotFit) as error:
        planned(gguf, exact - 1, n_ctx=1024, load_mode="mmap")
    assert error.value.exit_code == 4 and "--load-mode stream would fit" in str(error.value)
    assert "needs 513 MiB" in str(error.value) and "but 512 MiB are available" in str(error.value)


def test_a_stream_fits_to_the_last_byte_and_then_nothing_does(gguf: GgufFile) -> None:
    exact = 1024 * PER_POSITION + least_stream(gguf, 1024)
    made = planned(gguf, exact, n_ctx=1024)
    assert (made.load_mode, made.needed_bytes, made.verdict) == ("stream", exact, "TIGHT")
    with pytest.raises(DoesNotFit) as error:
        planned(gguf, exact - 1, n_ctx=1024)
    assert error.value.exit_code == 4 and error.value.extra["max_ctx"] == 768
    assert "--ctx-size 768 or --cache-type-k q8_0 --cache-type-v q8_0 would fit" in str(error.value)


def test_the_cache_type_that_loses_least_is_named(gguf: GgufFile) -> None:
    for kv_type, row in (("q8_0", 34), ("q4_0", 18)):
        room = 100_096 * PER_POSITION * row // 64 + least_stream(gguf, 100_096)
        with pytest.raises(DoesNotFit, match=f"--cache-type-k {kv_type} "):
            planned(gguf, room, n_ctx=100_000)
        assert planned(gguf, room, n_ctx=100_000, type_k=kv_type, type_v=kv_type).fits
    with pytest.raises(DoesNotFit) as error:
        planned(gguf, room - 1, n_ctx=100_000)
    assert "cache-type" not in str(error.value)


def test_the_way_out_that_is_named_works(gguf: GgufFile) -> None:
    room = 300_000 * PER_POSITION + least_stream(gguf, 500_000)
    with pytest.raises(DoesNotFit) as error:
        planned(gguf, room, n_ctx=500_000)
    most = error.value.extra["max_ctx"]
    assert isinstance(most, int) and planned(gguf, room, n_ctx=most).n_ctx == most
    with pytest.raises(DoesNotFit):
        planned(gguf, room, n_ctx=most + 1)
    assert planned(gguf, room, n_ctx=500_000, type_k="q8_0", type_v="q8_0").fits


def test_fewer_sequences_are_a_way_out_too(gguf: GgufFile) -> None:
    room = 3 * 65536 * PER_POSITION + least_stream(gguf, 65536)
    with pytest.raises(DoesNotFit, match=r"--ctx-size \d+ .*or --parallel 3 would fit"):
        planned(gguf, room, n_ctx=65536, parallel=4)
    assert planned(gguf, room, n_ctx=65536, parallel=3).fits


def test_what_does_not_fit_can_be_looked_at_too(gguf: GgufFile) -> None:
    facts = ModelFacts.of(gguf, DecoderShape.read(gguf))
    made = assess(facts, machine(1024 * PER_POSITION + least_stream(gguf, 1024) - 1), PlanRequest(n_ctx=1024))
    assert (made.verdict, made.fits, made.fit, made.max_ctx) == ("NO", False, "no", 768)
    assert made.total_bytes == weights_of(gguf) + made.kv_bytes + made.engine_bytes
    with pytest.raises(DoesNotFit) as error:
        planned(gguf, made.budget_bytes, n_ctx=1024)
    assert error.value.message == made.reason


def test_what_a_stopping_worker_gives_back_counts(gguf: GgufFile) -> None:
    facts = ModelFacts.of(gguf, DecoderShape.read(gguf))
    least = 1024 * PER_POSITION + least_stream(gguf, 1024)
    small = machine(least - 1000)
    assert assess(facts, small, PlanRequest(n_ctx=1024), freed_bytes=999).verdict == "NO"
    made = assess(facts, small, PlanRequest(n_ctx=1024), freed_bytes=1000)
    assert made.verdict == "TIGHT" and "the running worker gives back" in made.budget_reason
    capped = assess(facts, replace(small, memory_limit=least - 1), PlanRequest(n_ctx=1024), freed_bytes=10**9)
    assert capped.verdict == "NO" and capped.budget_bytes == least - 1


@pytest.mark.parametrize(("spare", "verdict"), [(0, "TIGHT"), (-1, "PAGES"), (None, "OK")])
def test_under_a_tenth_of_the_budget_left_is_tight(gguf: GgufFile, spare: int | None, verdict: str) -> None:
    total = planned(gguf, n_ctx=1024).total_bytes
    ninth = -(-total // 9)  # the least spare that is a tenth of the whole budget
    made = planned(gguf, total + (ninth if spare is None else spare), n_ctx=1024, load_mode="mmap")
    assert made.verdict == verdict
    assert planned(gguf, total + ninth - 1, n_ctx=1024).verdict == "TIGHT"


def test_rows_add_up_and_each_says_where_it_comes_from(gguf: GgufFile) -> None:
    made = planned(gguf, n_ctx=1024, threads=2)
    rows = {row.name: row for row in made.rows}
    parts = ("interpreter_bytes", "buffers_bytes", "reserve_bytes")
    assert sum(int(rows[name].value) for name in parts) == rows["engine_bytes"].value == made.engine_bytes
    kinds = [int(row.value) for name, row in rows.items() if name.startswith("weights_") and name != "weights_bytes"]
    assert sum(kinds) == rows["weights_bytes"].value == weights_of(gguf)
    assert made.kv_bytes_per_token * made.n_ctx == made.kv_bytes
    assert {row.provenance for row in made.rows} == {"measured", "derived", "policy", "operator"}
    assert all(row.reason for row in made.rows)


def test_a_machine_too_small_for_anything_hears_the_least_number(gguf: GgufFile) -> None:
    least = -(-(256 * PER_POSITION + least_stream(gguf, 256)) // MIB)
    with pytest.raises(DoesNotFit, match=f"even --ctx-size 256 needs {least} MiB"):
        planned(gguf, 100 * MIB, n_ctx=4096)


@pytest.mark.parametrize("mode", ["resident", "mlock"])
def test_a_copy_that_was_asked_for_is_not_replaced_in_silence(gguf: GgufFile, mode: str) -> None:
    exact = weights_of(gguf) + 1024 * PER_POSITION + RESERVE
    assert planned(gguf, exact, n_ctx=1024, load_mode=mode).load_mode == mode
    with pytest.raises(DoesNotFit, match="--load-mode stream would fit"):
        planned(gguf, exact - 1, n_ctx=1024, load_mode=mode)
    assert planned(gguf, n_ctx=1024, load_mode="mmap").load_mode == "mmap"


def test_the_cgroups_limit_counts_where_it_is_smaller(gguf: GgufFile) -> None:
    small = machine(memory_limit=1024 * PER_POSITION + RESERVE)
    made = plan(gguf, DecoderShape.read(gguf), small, PlanRequest(n_ctx=1024))
    assert made.load_mode == "stream"
    assert "under a limit of" in next(row.reason for row in made.rows if row.name == "budget_bytes")


def test_large_passes_grow_the_reserve(gguf: GgufFile) -> None:
    made = planned(gguf, n_ctx=1 << 17, ubatch_size=1 << 16)
    assert made.buffers_bytes == buffers_bytes(DecoderShape.read(gguf), 1 << 17, 1 << 16, 4) > 112 * MIB
    assert made.needed_bytes == weights_of(gguf) + made.kv_bytes + 400 * MIB + made.buffers_bytes


@pytest.mark.parametrize("request_", [
    {"type_k": "q3"}, {"type_v": "f64"}, {"load_mode": "fast"}, {"n_ctx": -1}, {"n_ctx": 1 << 40}, {"threads": 0},
    {"threads": 256}, {"ubatch_size": 0}, {"parallel": 0},
])  # fmt: skip
def test_requests_nobody_can_meet(gguf: GgufFile, request_: dict[str, object]) -> None:
    with pytest.raises(UsageError) as error:
        planned(gguf, **request_)
    assert error.value.param


def test_q8_0_needs_heads_of_whole_blocks(tmp_path: Path) -> None:
    narrow = read_gguf(tiny_llama(tmp_path / "n.gguf", n_embd=64, n_heads=4))
    with pytest.raises(UsageError, match="have 16; use f32, f16 or bf16"):
        planned(narrow, type_k="q8_0")
    with pytest.raises(DoesNotFit) as error:
        planned(narrow, RESERVE + 300 * PER_POSITION, n_ctx=1 << 22)
    assert "q8_0" not in str(error.value)


@pytest.mark.parametrize(("quota", "threads"), [(None, 4), (0.5, 1), (1.5, 1), (2.0, 2), (3.9, 3), (64.0, 4)])
def test_threads_stay_within_cores_and_quota(quota: float | None, threads: int) -> None:
    n, reason = threads_for(machine(cpu_quota=quota))
    assert n == threads and ("quota" in reason) == (quota is not None and quota < 4)


def test_more_threads_than_the_quota_is_a_warning(gguf: GgufFile) -> None:
    shape = DecoderShape.read(gguf)
    made = plan(gguf, shape, machine(cpu_quota=1.5), PlanRequest(threads=4))
    assert made.threads == 4 and "quota is 1.5" in made.warnings[0]
    assert plan(gguf, shape, machine(cpu_quota=1.5), PlanRequest()).threads == 1
