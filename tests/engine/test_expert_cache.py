"""Experts that are read as they are needed: same bits whatever is cached, each read once, and what goes wrong.

The cache's policy is compared with a numpy twin (benchmarks/expert_caches.py). Not here: dense weights
(test_streaming.py), how the cache is divided (weights/test_experts.py).
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.expert_caches import Ideal, foreseen, steps
from benchmarks.identity import MOST_BESIDE, Verdict, Way, prompts
from engine.budget import Machine
from engine.errors import ReadFailed
from engine.generate import Engine
from engine.gguf.reader import read_gguf
from engine.load import EngineOptions, load_engine
from engine.relayout.copy import write_copy
from engine.weights.experts import ExpertCache
from engine.weights.heat import even_heat
from tests.engine.cancels import GREEDY, cancelled_while_waiting, pester
from tests.tiny_moe import N_EXPERTS, mixed_experts, tiny_qwen3moe

MACHINE = Machine(1 << 34, None, 2, (0, 1), None)
IDS = [5, 9, 100, 7]
SLOT = 3 * (8192 + 4096)  # a part of 6,912 bytes, wherever in a block it begins
N_USED = 4


def streamed(path: Path, n_slots: int = 16, threads: int = 2, ubatch: int = 64, heat_dir: str = "") -> Engine:
    options = EngineOptions(
        512, threads, threads, ubatch_size=ubatch, load_mode="stream", spec_type="none", pinned_bytes=1 << 30,
        expert_bytes=n_slots * SLOT, heat_dir=heat_dir,
    )  # fmt: skip
    return load_engine(path, options, MACHINE)


def cache_of(engine: Engine) -> ExpertCache:
    assert engine._m.stream is not None and engine._m.stream.experts is not None
    return engine._m.stream.experts


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_qwen3moe(tmp_path / "tiny.gguf")


@pytest.fixture(params=["as it came", "laid out anew"])
def either(request: pytest.FixtureRequest, model: Path) -> Path:
    """The model, or a copy of it whose experts are one stretch each, under the same name."""
    if request.param != "as it came":
        copy = model.with_name("copy.gguf")
        write_copy(read_gguf(model), even_heat(2, N_EXPERTS), copy, lambda *_: None)
        copy.replace(model)
    return model


@pytest.mark.parametrize("make", [tiny_qwen3moe, mixed_experts])
def test_no_cache_and_no_thread_count_changes_a_bit(make: Callable[[Path], Path], tmp_path: Path) -> None:
    """From two slots, a wave for each expert, to room for all; in company, with sleeps in all threads."""
    path = make(tmp_path / "m.gguf")
    whole = path.stat().st_size
    verdict = Verdict(path, prompts(4, 320, 140))
    for way in (
        Way(1, 512, "stream", ring=50_000, experts=0),
        Way(2, 64, "stream", beside=MOST_BESIDE, is_rough=True, pinned=whole, experts=whole // 3),
        Way(3, 7, "stream", beside=2, is_rough=True, pinned=30_000, ring=100_000, experts=whole // 6),
        Way(2, 64, "stream", pinned=whole, experts=4 * whole),
    ):
        verdict.check(way)
    assert verdict.n_wrong == 0


@pytest.mark.parametrize("n_slots", [13, 16, 21, 26])
def test_what_is_read_is_what_the_policy_says(model: Path, n_slots: int) -> None:
    """Prompts and answers: layer after layer the same experts are missing as in numpy, and the bytes with them."""
    engine = streamed(model, n_slots)
    cache = cache_of(engine)
    cache.record(1 << 16)
    before = engine._m.stream.readers.n_bytes
    for i in range(3):
        seq = engine.open([i, *IDS * 9], GREEDY, 40)
        while engine.step(seq).finish is None:
            pass
        engine.close(seq)
    uses, size = cache.uses(), int(cache.sizes[0].sum())
    ideal = Ideal([size, size], N_EXPERTS, n_slots * size, N_USED)
    for one in steps(uses):
        ideal.step(one)
    assert cache.n_misses == ideal.n_missed and cache.n_hits + cache.n_misses == len(uses)
    assert np.array_equal(cache.heat, ideal.heat)
    assert {(int(a), int(b)) for a, b in np.argwhere(cache.held)} == set(ideal.held)
    read = engine._m.stream.readers.n_bytes - before
    assert cache.n_misses * size <= read == engine.spent().expert_bytes <= cache.n_misses * SLOT
    assert foreseen(uses, [size, size], n_slots * size) <= ideal.missed_bytes
    assert (cache.n_misses == len(np.unique(uses[:, :2], axis=0))) == (n_slots == 26), "each once when all have room"
    engine.shutdown()


def test_an_expert_is_read_once_for_all_rows_of_a_step(model: Path) -> None:
    """With two slots nothing is ever there: 64 rows need nearly all experts and read each of them once."""
    engine = streamed(model, n_slots=2)
    cache = cache_of(engine)
    cache.record(1 << 16)
    seq = engine.open(list(range(64)), GREEDY, 1)
    engine.step(seq)
    uses = cache.uses()
    assert uses[:, 2].sum() == 2 * 64 * N_USED and len(uses) > 2 * (N_EXPERTS - 3)
    assert cache.n_misses == len(uses) == len(np.unique(uses[:, :2], axis=0))
    engine.shutdown()


@pytest.mark.parametrize("n_slots", [2, 16])
def test_a_disk_error_ends_the_request_and_never_the_engine(either: Path, n_slots: int) -> None:
    """No page is mapped where /proc/self/mem is read: the kernel's own EIO, as a bad sector would give."""
    engine = streamed(either, n_slots)
    want = engine.last_logits(IDS)
    fd = engine._m.stream.origin.fd
    kept, unreadable = os.dup(fd), os.open("/proc/self/mem", os.O_RDONLY)
    for _ in range(3):
        os.dup2(unreadable, fd)
        with pytest.raises(ReadFailed, match=r"reading the model file tiny\.gguf failed: input/output error"):
            for first in range(300):  # somebody needs what is not there
                engine.last_logits([first, *IDS])
        os.dup2(kept, fd)
        assert np.array_equal(engine.last_logits(IDS), want)
    engine.shutdown()
    os.close(kept)
    os.close(unreadable)


def test_experts_of_a_file_that_changed_are_forgotten(model: Path) -> None:
    engine = streamed(model, n_slots=26)
    want, data, found = engine.last_logits(IDS), model.read_bytes(), os.stat(model)
    model.write_bytes(bytes(len(data)))
    with pytest.raises(ReadFailed, match=r"the model file tiny\.gguf was written to .*; load it again"):
        engine.last_logits([300, 301, 302, 303, 304])
    assert not cache_of(engine).held.any()
    model.write_bytes(data)
    os.utime(model, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert np.array_equal(engine.last_logits(IDS), want)
    engine.shutdown()


def test_cancels_at_any_moment_leave_the_cache_in_order(either: Path) -> None:
    engine = streamed(either, n_slots=14)
    wanted = {first: engine.last_logits([first, *IDS]) for first in range(8)}
    pester(engine, lambda rng: [rng.randrange(320), *IDS])
    for first, want in wanted.items():
        assert np.array_equal(engine.last_logits([first, *IDS]), want)
    engine.shutdown()


def test_a_cancel_leaves_a_step_that_waits_for_an_expert(model: Path) -> None:
    engine = streamed(model)
    assert cancelled_while_waiting(engine, engine.open(IDS, GREEDY, 5)).cancelled
    engine.shutdown()


def test_the_hottest_are_there_before_the_first_step(model: Path) -> None:
    engine = streamed(model, n_slots=10)
    cache = cache_of(engine)
    want = engine.last_logits(IDS)
    cache.end(is_whole=False, is_sound=False)
    assert not cache.held.any()
    cache.heat[:] = np.random.default_rng(1).permutation(2 * N_EXPERTS).reshape(2, -1)
    cache.fill(lambda *_: None)
    assert np.array_equal(cache.held, cache.heat >= 2 * N_EXPERTS - 10)
    cache.record(100)
    assert np.array_equal(engine.last_logits(IDS), want), "what was read before is what a step would read"
    engine.shutdown()


def test_heat_outlives_the_engine_and_orders_the_start_of_the_next(model: Path, tmp_path: Path) -> None:
    engine = streamed(model, 10, heat_dir=str(tmp_path / "heat"))
    assert not cache_of(engine).held.any()
    want = engine.last_logits(IDS)
    hottest = cache_of(engine).heat / cache_of(engine)._gain
    engine.shutdown()
    again = streamed(model, 10, heat_dir=str(tmp_path / "heat"))
    heat, held = cache_of(again).heat.copy(), cache_of(again).held
    assert heat == pytest.approx(hottest / 2, abs=1e-3) and heat.any()
    assert held.sum() == min(10, (heat > 0).sum()) and heat[held].min() >= heat[~held].max()
    assert np.array_equal(again.last_logits(IDS), want)
    again.shutdown()


def test_heat_of_another_model_or_damaged_is_nobodys(model: Path, tmp_path: Path) -> None:
    streamed(model, 10, heat_dir=str(tmp_path)).shutdown()
    (kept,) = tmp_path.glob("*.json")
    kept.write_text(kept.read_text()[:-3])
    engine = streamed(model, 10, heat_dir=str(tmp_path))
    assert not cache_of(engine).heat.any()
    engine.shutdown()


def test_a_cache_gives_memory_back_and_takes_it_again(model: Path) -> None:
    engine = streamed(model, n_slots=26)
    cache, want = cache_of(engine), engine.last_logits(IDS)
    assert cache.resize(0) == N_EXPERTS * SLOT and cache.held.sum() <= N_EXPERTS
    cache.record(1 << 12)
    for _ in range(3):
        assert np.array_equal(engine.last_logits(IDS), want)
    assert cache.held.sum() == N_EXPERTS
    assert cache.resize(1 << 30) == 26 * SLOT
    assert np.array_equal(engine.last_logits(IDS), want) and cache.held.sum() > N_EXPERTS
    engine.shutdown()
