"""Which threads a step runs on: `threads_batch` while a prompt is read, `threads` for answers. Not here: the team."""

from pathlib import Path

import numpy as np
import pytest

from engine.budget import Machine
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling
from tests.tiny import tiny_llama

THREADS_OF_JOB = 40 // 8  # in the job block of runner.py


@pytest.mark.parametrize(("threads", "threads_batch"), [(1, 2), (2, 1), (2, 3)])
def test_a_prompt_is_read_on_threads_batch_and_answered_on_threads(
    tmp_path: Path, threads: int, threads_batch: int
) -> None:
    machine = Machine(1 << 34, None, 2, (0, 1), None)
    options = EngineOptions(512, threads=threads, threads_batch=threads_batch, ubatch_size=64)
    engine = load_engine(tiny_llama(tmp_path / "tiny.gguf"), options, machine)
    job = engine._m.team._job.view(np.int64)
    seq = engine.open([1 + i % 300 for i in range(128)], Sampling(temperature=0.0), 3)
    phases = []
    while seq.finish is None:
        out = engine.step(seq)
        phases.append((out.phase, int(job[THREADS_OF_JOB])))
    engine.shutdown()
    assert phases == [("prefill", threads_batch)] * 2 + [("decode", threads)] * 2
