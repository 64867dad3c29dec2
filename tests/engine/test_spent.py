"""What an engine says it has used up, against what the test saw itself."""

import time
from pathlib import Path

import pytest

from engine.budget import Machine
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling
from engine.spent import Spent, Tally
from tests.tiny import tiny_llama

MACHINE = Machine(1 << 34, None, 2, (0, 1), None)
IDS = [5, 9, 100, 7, 8]
KIB = 1024


def load(path: Path, mode: str, **options: int):
    return load_engine(
        path, EngineOptions(512, 2, 2, ubatch_size=64, load_mode=mode, spec_type="none", **options), MACHINE
    )


@pytest.mark.parametrize("mode", ["mmap", "stream"])
def test_steps_rows_tokens_and_time_are_those_that_passed(tmp_path: Path, mode: str) -> None:
    engine = load(tiny_llama(tmp_path / "tiny.gguf"), mode, pinned_bytes=50_000, ring_bytes=64 * KIB)
    assert engine.spent() == Spent()
    begin = time.perf_counter_ns()
    seq = engine.open(IDS, Sampling(temperature=0.7, top_k=0), 6)
    while seq.finish is None:
        engine.step(seq)
    took_ns = time.perf_counter_ns() - begin
    spent = engine.spent()
    # The step that ends the prompt makes a token as well.
    assert (spent.n_steps, spent.n_rows, spent.n_tokens) == (6, len(IDS) + 5, 6)
    assert 0 < spent.sample_ns + spent.disk_ns < spent.step_ns <= took_ns
    assert spent.compute_ns == spent.step_ns - spent.sample_ns - spent.disk_ns
    assert spent.sample_ns > 6 * 1000, "320 logits take over a microsecond each time"
    stream = engine._m.stream
    assert spent.read_bytes >= (6 * stream.split.streamed_bytes if stream else 0)
    assert bool(spent.read_bytes) == bool(spent.read_ns) == (mode == "stream")
    engine.close(seq)
    again = engine.open(IDS, Sampling(temperature=0.0), 1)
    engine.step(again)
    assert engine.spent().since(spent).n_tokens == 1 and engine.spent().since(spent).n_rows == len(IDS)
    engine.shutdown()


def test_a_disk_that_does_not_answer_is_waiting_and_not_computing(tmp_path: Path) -> None:
    """The readers go home; a cancel ends the wait."""
    import threading

    engine = load(tiny_llama(tmp_path / "tiny.gguf"), "stream", pinned_bytes=0, ring_bytes=64 * KIB)
    seq = engine.open(IDS, Sampling(temperature=0.0), 5)
    engine.step(seq)
    before = engine.spent()
    assert engine._m.stream is not None and engine._m.stream.readers.stop()
    outs = []
    thread = threading.Thread(target=lambda: outs.append(engine.step(seq)))
    thread.start()
    until = time.monotonic() + 0.2
    while not outs:
        if time.monotonic() > until:
            engine.cancel()
        thread.join(0.01)
    spent = engine.spent().since(before)
    assert spent.n_tokens == 0 and spent.disk_ns > 0.15e9 and spent.compute_ns < 0.1 * spent.disk_ns
    engine.shutdown()


def test_sums_of_two_moments_and_faults_of_this_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = iter([70, 75, 90])
    monkeypatch.setattr("engine.spent._major_faults", lambda: next(faults))
    tally = Tally()
    tally.step(3, 500)
    first = tally.spent(20, None)
    tally.step(1, 100)
    tally.n_tokens += 1
    assert tally.spent(50, None).since(first) == Spent(1, 1, 1, 100, 0, 30, 0, 0, 15)
    assert (first.major_faults, first.compute_ns) == (5, 480)
