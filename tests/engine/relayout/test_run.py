"""A model laid out anew computes the same bits, however it is loaded, in a third of the reads. Not here: speed."""

import random
from pathlib import Path

import numpy as np
import pytest

from engine.gguf.reader import read_gguf
from engine.load import EngineOptions, load_engine
from engine.planner import Machine
from engine.relayout.copy import write_copy
from engine.relayout.order import expert_layers
from engine.sampling import Sampling
from engine.weights.heat import even_heat
from tests.families.family import N_VOCAB
from tests.families.mixtures import MIXTURES
from tests.families.stored import write
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


@pytest.mark.parametrize("n_bytes", [0, 400_000])
@pytest.mark.parametrize("make", [tiny_qwen3moe, mixed_experts])
def test_an_expert_that_is_one_stretch_is_one_read(tmp_path: Path, make, n_bytes: int) -> None:
    """Streamed with two slots and with some: three reads for each expert of the file as it came, one of the copy."""
    source = read_gguf(make(tmp_path / "moe.gguf"))
    layers = expert_layers(source)
    write_copy(source, even_heat(len(layers), layers[0].n_experts), tmp_path / "copy.gguf", lambda *told: None)
    seen, reads = set(), []
    for path in (source.path, tmp_path / "copy.gguf"):
        options = EngineOptions(
            512, 2, 2, ubatch_size=64, load_mode="stream", spec_type="none", pinned_bytes=1 << 30, expert_bytes=n_bytes
        )
        e = load_engine(path, options, MACHINE)
        seen.add(np.concatenate(list(e.logit_rows(PROMPT))).tobytes())
        seq = e.open(PROMPT[:5], Sampling(temperature=0.0), 30)
        made = []
        while seq.finish is None:
            made.append(e.step(seq).token)
        seen.add(bytes(repr(made), "ascii"))
        spent = e.spent()
        reads.append((spent.n_reads, spent.expert_misses, spent.expert_bytes))
        e.shutdown()
    (n_came, missed, came), (n_laid, missed_too, laid) = reads
    assert len(seen) == 2 and missed == missed_too > 100
    assert (n_came, n_laid) == (3 * missed, missed) and laid <= came


@pytest.mark.parametrize("name", MIXTURES)
def test_a_copy_of_every_family_of_mixtures_streams_the_same_bits(tmp_path: Path, name: str) -> None:
    write(name, tmp_path / "moe.gguf", "Q8_0")
    source = read_gguf(tmp_path / "moe.gguf")
    layers = expert_layers(source)
    write_copy(source, even_heat(len(layers), layers[0].n_experts), tmp_path / "copy.gguf", lambda *told: None)
    seen = set()
    for file, mode in (("moe.gguf", "mmap"), ("copy.gguf", "stream")):
        options = EngineOptions(
            512, 2, 2, ubatch_size=16, load_mode=mode, spec_type="none", pinned_bytes=1 << 30, expert_bytes=1 << 16
        )
        e = load_engine(tmp_path / file, options, MACHINE)
        seen.add(np.concatenate(list(e.logit_rows([i % N_VOCAB for i in PROMPT]))).tobytes())
        spent = e.spent()
        assert spent.n_reads == spent.expert_misses and bool(spent.n_reads) == (mode == "stream")
        e.shutdown()
    assert len(seen) == 1
