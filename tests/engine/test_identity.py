"""Threads, chunks, layout, company, guesses and sleeping threads never change a bit, for any type of tensor or cache.

The full run is `python -m benchmarks.identity --full`.

Not here: whether the logits are right (test_accuracy.py, test_against_llamacpp.py).
"""

import signal
import threading
import time
from pathlib import Path

import pytest

from benchmarks.identity import MOST_BESIDE, Verdict, Way, every_type, prompts, run, ways
from benchmarks.model import smollm2
from benchmarks.naps import FIRST, LENGTHS, take_naps_on_signals
from engine.cache.layout import KV_TYPES
from tests.tiny import tiny_llama
from tests.tiny_moe import mixed_experts

# Of the sixteen ways eight, so that every two values of threads, chunk and layout meet.
HALF = [w for i, w in enumerate(ways()) if (i + i // 4 + i // 8) % 2 == 0]
OTHER_CACHES = [(t, t) for t in KV_TYPES if t != "f16"] + [("q8_0", "f16"), ("f16", "q8_0")]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return every_type(tmp_path_factory.mktemp("models") / "tiny.gguf")


def test_every_way_computes_the_same_bits_for_every_tensor_type(tiny):
    verdict = Verdict(tiny, prompts(10, 320, 300))
    for way in HALF:
        verdict.check(way, range(4, 10) if way.ubatch == 1 else None)
    assert verdict.n_wrong == 0


def test_experts_compute_the_same_bits_in_every_way(tmp_path):
    """Few rows of an expert and many, gathered or neighbours, gate and up in formats of their own."""
    verdict = Verdict(mixed_experts(tmp_path / "experts.gguf"), prompts(10, 320, 300))
    for way in [*HALF[::2], HALF[-1]]:
        verdict.check(way, range(7, 10) if way.ubatch == 1 else None)
    assert verdict.n_wrong == 0


@pytest.mark.parametrize("kv", OTHER_CACHES, ids="-".join)
def test_every_cache_type_keeps_the_rule(tiny, kv):
    verdict = Verdict(tiny, prompts(4, 320, 258), Way(kv=kv))
    verdict.check(Way(1, 7, "resident", kv, MOST_BESIDE, is_rough=True))
    verdict.check(Way(2, 64, "mmap", kv, MOST_BESIDE, is_rough=True))
    assert verdict.n_wrong == 0


def test_sizes_that_fill_no_panel_compute_the_same_bits(tmp_path):
    """Rows that are no multiple of eight, one key-value head, a vocabulary of odd size."""
    model = tiny_llama(tmp_path / "odd.gguf", n_embd=96, n_heads=3, n_kv_heads=1, n_ff=224, n_vocab=331, tied=True)
    verdict = Verdict(model, prompts(6, 331, 300))
    for way in (Way(2, 7, "resident", beside=5, is_rough=True), Way(1, 64, "mmap"), Way(2, 512, "mmap", beside=2)):
        verdict.check(way)
    assert verdict.n_wrong == 0


def test_the_real_model_computes_the_same_bits():
    """The ways that share least: one thread on panels in one chunk, two on file rows in small ones, in company."""
    verdict = Verdict(smollm2(), [*prompts(1, 30000, 258), [5, 9]])
    verdict.check(Way(2, 64, "mmap", beside=2, is_rough=True))
    assert verdict.n_wrong == 0


def test_the_comparison_sees_a_difference(tiny):
    """One id, and the least that a cache type may change."""
    text = prompts(1, 320, 40)[0]
    base = run(tiny, Way(), {0: text})[0]
    assert run(tiny, Way(), {0: text})[0].digests == base.digests
    assert run(tiny, Way(), {0: [*text[:-2], text[-2] ^ 1, text[-1]]})[0].digests != base.digests
    assert run(tiny, Way(kv=("q8_0", "f16")), {0: text})[0].digests != base.digests


def test_the_company_is_there_and_the_sleeps_are_real(tiny):
    found, slept = run(tiny, Way(2, 64, "resident", beside=3, is_rough=True), dict(enumerate(prompts(8, 320, 300))))
    assert slept.sent > 5 and found.n_cached > 100
    rows = sum(len(t) for t in found.texts.values()) * 2 - found.n_cached + 8 * 2 * 5
    assert found.n_steps < rows / 2
    take_naps_on_signals()
    start = time.perf_counter()
    signal.pthread_kill(threading.get_ident(), FIRST + LENGTHS - 1)
    assert time.perf_counter() - start >= 20e-6 * 2 ** (LENGTHS - 1)
