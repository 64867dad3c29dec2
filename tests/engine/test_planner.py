"""Plans at their borders: one byte less memory changes the mode or the verdict, and the verdict names the way out."""

from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import DoesNotFit, UsageError
from engine.gguf.reader import GgufFile, read_gguf
from engine.models.shape import DecoderShape
from engine.planner import MIB, Machine, Plan, PlanRequest, buffers_bytes, kv_bytes, plan, threads_for
from tests.tiny import tiny_llama, tiny_mixed

RESERVE = 512 * MIB
# 2 layers x 2 KV heads x 32 values, f16, keys and values
PER_POSITION = 2 * 2 * 32 * 2 * 2


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> GgufFile:
    return read_gguf(tiny_llama(tmp_path_factory.mktemp("plan") / "m.gguf", n_ctx=100_000))


def machine(available: int = 1 << 34, **change: object) -> Machine:
    whole = Machine(available, None, 4, (0, 1, 2, 3, 4, 5, 6, 7), None)
    return replace(whole, **change)  # type: ignore[arg-type]


def planned(gguf: GgufFile, available: int = 1 << 34, **request: object) -> Plan:
    return plan(gguf, DecoderShape.read(gguf), machine(available), PlanRequest(**request))  # type: ignore[arg-type]


def test_the_cache_is_its_allocation_to_the_byte(gguf: GgufFile) -> None:
    assert planned(gguf, n_ctx=1024).kv_bytes == 1024 * PER_POSITION
    q8 = planned(gguf, n_ctx=1024, type_k="q8_0", type_v="q8_0")
    assert q8.kv_bytes == 1024 * PER_POSITION // 2 * 34 // 32
    assert planned(gguf, n_ctx=1024, type_v="q8_0").kv_bytes == (1024 * PER_POSITION + q8.kv_bytes) // 2
    assert planned(gguf, n_ctx=1024, parallel=3).kv_bytes == 3 * 1024 * PER_POSITION


def test_kv_heads_that_differ_and_layers_without_any() -> None:
    """Exact bytes of models known to be counted wrongly when only the first layer is looked at."""
    assert kv_bytes([8, 0, 0, 1, 0, 0, 8, 2], 128, 128, 32768, "f16", "f16") == 318_767_104
    assert kv_bytes([2 * (i % 11 == 5) for i in range(88)], 128, 128, 32768, "f16", "f16") == 268_435_456
    assert kv_bytes([16] * 4, 192, 128, 4096, "f16", "f16") == 167_772_160


@pytest.mark.parametrize(("n_ctx", "ubatch_size", "threads"), [(256, 512, 1), (2048, 64, 2), (1 << 17, 512, 4)])
def test_the_buffers_are_no_less_than_what_is_allocated(
    n_ctx: int, ubatch_size: int, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.cache.kv import KvCache
    from engine.kernels.program import Buffer
    from engine.models import llama, parts
    from engine.weights.store import Store

    made: list[Buffer] = []

    def counted(n_bytes: int) -> Buffer:
        made.append(Buffer(n_bytes))
        return made[-1]

    monkeypatch.setattr(parts, "Buffer", counted)
    gguf = read_gguf(tiny_mixed(tmp_path / "m.gguf", n_vocab=2000))
    shape, store = DecoderShape.read(gguf), Store(gguf)
    try:
        model = llama.Model(shape, store)
        kv = KvCache(n_ctx, shape.n_layers, shape.n_kv_heads, shape.head_dim, "f16", "f16")
        assert kv.n_bytes == planned(gguf, n_ctx=n_ctx).kv_bytes
        model.record(parts.Parts(shape, store.matrices, kv, min(ubatch_size, n_ctx), 16, threads))
    finally:
        store.close()
    allocated = sum(buffer.n_bytes for buffer in made)
    assert 0.3 * buffers_bytes(shape, n_ctx, ubatch_size, threads) < allocated
    assert allocated <= buffers_bytes(shape, n_ctx, ubatch_size, threads)


@pytest.mark.parametrize(("asked", "taken"), [(1, 256), (256, 256), (257, 512), (5000, 5120)])
def test_the_context_is_rounded_up_to_pages_aloud(gguf: GgufFile, asked: int, taken: int) -> None:
    made = planned(gguf, n_ctx=asked)
    row = next(row for row in made.rows if row.name == "n_ctx")
    assert made.n_ctx == row.value == taken and row.provenance == "request"
    assert ("rounded up" in row.reason) == (asked != taken)
    assert made.kv_bytes == taken * PER_POSITION


def test_without_a_number_the_context_is_the_trained_one_up_to_8192(gguf: GgufFile, tmp_path: Path) -> None:
    assert planned(gguf).n_ctx == 8192
    short = read_gguf(tiny_llama(tmp_path / "s.gguf", n_ctx=700))
    assert planned(short).n_ctx == 768


def test_without_a_number_a_small_machine_gets_less_context_and_is_told(gguf: GgufFile) -> None:
    made = planned(gguf, RESERVE + 1300 * PER_POSITION)
    assert (made.n_ctx, made.load_mode) == (1280, "mmap")
    assert "more would not fit" in made.rows[0].reason


def test_past_the_trained_length_is_a_warning_only(gguf: GgufFile) -> None:
    assert any("trained on 100,000" in words for words in planned(gguf, n_ctx=100_001).warnings)
    assert planned(gguf, n_ctx=100_000).warnings == ()


def test_auto_takes_resident_to_the_last_byte_then_mmap(gguf: GgufFile) -> None:
    exact = gguf.n_bytes + 1024 * PER_POSITION + RESERVE
    assert planned(gguf, exact, n_ctx=1024).load_mode == "resident"
    made = planned(gguf, exact - 1, n_ctx=1024)
    assert made.load_mode == "mmap" and made.fits and made.needed_bytes == exact - gguf.n_bytes
    assert "read from disk" in made.warnings[0]


def test_mmap_fits_to_the_last_byte_and_then_nothing_does(gguf: GgufFile) -> None:
    exact = 1024 * PER_POSITION + RESERVE
    assert planned(gguf, exact, n_ctx=1024).load_mode == "mmap"
    with pytest.raises(DoesNotFit) as error:
        planned(gguf, exact - 1, n_ctx=1024)
    assert error.value.exit_code == 4 and error.value.extra["max_ctx"] == 768
    assert "--ctx-size 768 would fit" in str(error.value) and "--cache-type-k q8_0" in str(error.value)


def test_the_way_out_that_is_named_works(gguf: GgufFile) -> None:
    room = 300_000 * PER_POSITION + RESERVE
    with pytest.raises(DoesNotFit) as error:
        planned(gguf, room, n_ctx=500_000)
    most = error.value.extra["max_ctx"]
    assert isinstance(most, int) and planned(gguf, room, n_ctx=most).n_ctx == most
    with pytest.raises(DoesNotFit):
        planned(gguf, room, n_ctx=most + 1)
    assert planned(gguf, room, n_ctx=500_000, type_k="q8_0", type_v="q8_0").fits


def test_a_machine_too_small_for_anything_hears_the_least_number(gguf: GgufFile) -> None:
    with pytest.raises(DoesNotFit, match="even --ctx-size 256 needs 513 MiB"):
        planned(gguf, 100 * MIB, n_ctx=4096)


@pytest.mark.parametrize("mode", ["resident", "mlock"])
def test_a_copy_that_was_asked_for_is_not_replaced_in_silence(gguf: GgufFile, mode: str) -> None:
    exact = gguf.n_bytes + 1024 * PER_POSITION + RESERVE
    assert planned(gguf, exact, n_ctx=1024, load_mode=mode).load_mode == mode
    with pytest.raises(DoesNotFit, match="--load-mode mmap would fit"):
        planned(gguf, exact - 1, n_ctx=1024, load_mode=mode)
    assert planned(gguf, n_ctx=1024, load_mode="mmap").load_mode == "mmap"


def test_the_cgroups_limit_counts_where_it_is_smaller(gguf: GgufFile) -> None:
    small = machine(memory_limit=1024 * PER_POSITION + RESERVE)
    made = plan(gguf, DecoderShape.read(gguf), small, PlanRequest(n_ctx=1024))
    assert made.load_mode == "mmap"
    assert "under a limit of" in next(row.reason for row in made.rows if row.name == "budget_bytes")


def test_large_passes_grow_the_reserve(gguf: GgufFile) -> None:
    made = planned(gguf, n_ctx=1 << 17, ubatch_size=1 << 16)
    assert made.buffers_bytes == buffers_bytes(DecoderShape.read(gguf), 1 << 17, 1 << 16, 4) > 112 * MIB
    assert made.needed_bytes == gguf.n_bytes + made.kv_bytes + 400 * MIB + made.buffers_bytes


@pytest.mark.parametrize("request_", [
    {"type_k": "q3"}, {"type_v": "f32"}, {"load_mode": "stream"}, {"n_ctx": -1}, {"n_ctx": 1 << 40}, {"threads": 0},
    {"ubatch_size": 0}, {"parallel": 0},
])  # fmt: skip
def test_requests_nobody_can_meet(gguf: GgufFile, request_: dict[str, object]) -> None:
    with pytest.raises(UsageError) as error:
        planned(gguf, **request_)
    assert error.value.param


def test_q8_0_needs_heads_of_whole_blocks(tmp_path: Path) -> None:
    narrow = read_gguf(tiny_llama(tmp_path / "n.gguf", n_embd=64, n_heads=4))
    with pytest.raises(UsageError, match="has 16; use f16"):
        planned(narrow, type_k="q8_0")
    with pytest.raises(DoesNotFit) as error:
        planned(narrow, RESERVE + 300 * PER_POSITION, n_ctx=1 << 20)
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
