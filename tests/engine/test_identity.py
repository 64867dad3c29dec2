"""Threads, prefill chunks and layout never change a bit of the logits, for any tensor type and any cache type.

Not here: whether the logits are right (test_accuracy.py, test_against_llamacpp.py).
"""

from pathlib import Path

import pytest

from benchmarks.identity import digest, ways
from benchmarks.model import smollm2
from engine.quants.registry import TYPES
from tests.tiny import tiny_llama, tiny_mixed

# Longer than one page of 256 positions, so that attention merges two tiles.
N_IDS = 300
FAR = {(1, 512, "resident"), (2, 7, "mmap")}


@pytest.mark.parametrize("kv", ["f16", "q8_0"])
@pytest.mark.parametrize("quant", TYPES)
def test_every_way_computes_the_same_bits(tmp_path: Path, quant: str, kv: str) -> None:
    model = tiny_llama(tmp_path / "tiny.gguf", quant=quant)
    assert len({digest(model, way, N_IDS) for way in ways(kv)}) == 1


def test_types_mixed_in_one_file_compute_the_same_bits(tmp_path: Path) -> None:
    model = tiny_mixed(tmp_path / "mixed.gguf")
    assert len({digest(model, way, N_IDS) for way in ways()}) == 1


def test_sizes_that_fill_no_panel_compute_the_same_bits(tmp_path: Path) -> None:
    """Rows that are no multiple of eight, one key-value head, a vocabulary of odd size."""
    model = tiny_llama(tmp_path / "odd.gguf", n_embd=96, n_heads=3, n_kv_heads=1, n_ff=224, n_vocab=331, tied=True)
    assert len({digest(model, way, N_IDS) for way in ways()}) == 1


def test_the_real_model_computes_the_same_bits() -> None:
    """The two ways that share least: one thread on panels in one chunk, two on file rows seven at a time."""
    far_apart = [way for way in ways() if (way.threads, way.ubatch, way.load_mode) in FAR]
    assert len(far_apart) == len(FAR)
    assert len({digest(smollm2(), way, N_IDS) for way in far_apart}) == 1
