"""A model laid out anew computes the same bits, however it is loaded. Not here: speed, reads from disk."""

import random
from pathlib import Path

import numpy as np
import pytest

from engine.gguf.reader import read_gguf
from engine.load import EngineOptions, load_engine
from engine.planner import Machine
from engine.relayout.copy import write_copy
from engine.relayout.order import expert_layers
from tests.tiny_moe import mixed_experts, tiny_qwen3moe

MACHINE = Machine(
    memory_available=8 << 30, memory_limit=None, physical_cores=2, cpu_mask=(0, 1), cpu_quota=None
)  # fmt: skip
PROMPT = [int(i) for i in np.random.default_rng(2).integers(0, 300, 40)]


@pytest.mark.parametrize("make", [tiny_qwen3moe, mixed_experts])
def test_the_copy_computes_the_same_bits(tmp_path: Path, make) -> None:
    source = read_gguf(make(tmp_path / "moe.gguf"))
    layers, rng = expert_layers(source), random.Random(1)
    heat = [[rng.random() for _ in range(layer.n_experts)] for layer in layers]
    write_copy(source, heat, tmp_path / "copy.gguf", lambda *told: None)
    seen = set()
    for path in (source.path, tmp_path / "copy.gguf"):
        for mode in ("resident", "mmap"):
            for ubatch in (1, 64):
                options = EngineOptions(threads=2, threads_batch=2, ubatch_size=ubatch, load_mode=mode)
                e = load_engine(path, options, MACHINE)
                assert e.info.load_mode == mode
                seen.add(np.concatenate(list(e.logit_rows(PROMPT))).tobytes())
                e.shutdown()
    assert len(seen) == 1
