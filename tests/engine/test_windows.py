"""Models with windows: pages that are given back change no bit, sharing knows what is gone; halves of one tensor.

Not here: the pages themselves (cache/test_windows.py), whether logits are right (models/test_families.py).
"""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.identity import MOST_BESIDE, Verdict, Way, prompts
from engine.budget import Machine
from engine.footprint import cache_bytes
from engine.generate import Engine, Sequence
from engine.gguf.reader import read_gguf
from engine.load import EngineOptions, load_engine
from engine.models.shape import DecoderShape
from engine.sampling import Sampling
from tests.families.stored import ids_of, write

MACHINE = Machine(1 << 34, None, 2, (0, 1), None)
GREEDY = Sampling(temperature=0.0)
N = 1500


def loaded(path: Path, rows: int, mode: str = "resident", **more: int) -> Engine:
    options = EngineOptions(
        2048, 2, 2, batch_size=max(512, rows), ubatch_size=rows, load_mode=mode, spec_type="none", n_parallel=2, **more
    )
    return load_engine(path, options, MACHINE)


def made(engine: Engine, seq: Sequence, n: int) -> tuple[list[int], list[bytes]]:
    """The next n tokens and the logits that each was chosen from."""
    tokens: list[int] = []
    bits: list[bytes] = []
    while len(tokens) < n:
        if (token := engine.step(seq).token) is not None:
            tokens.append(token)
            bits.append(engine.logits_of(seq).tobytes())
    return tokens, bits


@pytest.mark.parametrize("family", ["gemma3", "phi3"])  # some layers have a window; all have
def test_what_a_window_gives_back_changes_no_bit(family: str, tmp_path: Path) -> None:
    write(family, tmp_path / "m.gguf")
    ids, found, sizes = ids_of(N), [], []
    shape = DecoderShape.read(read_gguf(tmp_path / "m.gguf"))
    for rows in (32, 2048):  # with chunks as long as the context nothing is ever given back
        engine = loaded(tmp_path / "m.gguf", rows)
        seq = engine.open(ids, GREEDY, 300)
        found.append(made(engine, seq, 300))
        kv = engine._m.kv
        assert kv.n_bytes == engine.info.kv_bytes == cache_bytes(shape, 2048, "f16", "f16", 2, rows)
        sizes.append(kv.n_bytes)
        if rows == 32:
            assert all(s.first > 4 for s in seq.kv.strands if s.pool.window)
        engine.close(seq)
        assert kv.n_free == kv.n_pages
        engine.shutdown()
    assert found[0] == found[1]
    assert sizes[0] < (0.6 if family == "gemma3" else 0.4) * sizes[1]


def test_company_guesses_and_shared_pages_change_no_bit_of_a_window(tmp_path: Path) -> None:
    """Prompts of up to nine pages, of which a layer with a window keeps three."""
    write("gemma3", tmp_path / "m.gguf", "Q8_0")
    verdict = Verdict(tmp_path / "m.gguf", prompts(2, 272, 700) + prompts(22, 272, 2300)[18:])
    for way in (Way(2, 64, "mmap", beside=MOST_BESIDE, is_rough=True), Way(1, 7, "resident", beside=2, is_rough=True)):
        verdict.check(way)
    assert verdict.n_wrong == 0


def test_a_shared_prompt_is_read_again_where_its_window_is_gone(tmp_path: Path) -> None:
    write("gemma3", tmp_path / "m.gguf")
    engine, ids = loaded(tmp_path / "m.gguf", 64), ids_of(N)
    first = engine.open(ids, GREEDY, 10)
    made(engine, first, 1)
    for n_common, n_cached in ((1400, 1400), (600, 0)):
        prompt = ids[:n_common] + ids_of(50, seed=9)
        alone = engine.open(prompt, GREEDY, 10)
        wanted = made(engine, alone, 5)
        engine.close(alone)
        again = engine.open(prompt, GREEDY, 10, like=first)
        assert again.n_cached == n_cached
        assert made(engine, again, 5) == wanted
        engine.close(again)
    engine.close(first)
    engine.shutdown()


def test_halves_of_one_tensor_are_streamed_side_by_side(tmp_path: Path) -> None:
    write("phi3", tmp_path / "m.gguf")
    ids, found = ids_of(70), []
    for mode, more in (("resident", {}), ("mmap", {}), ("stream", {"pinned_bytes": 90_000, "ring_bytes": 50_000})):
        engine = loaded(tmp_path / "m.gguf", 64, mode, **more)
        found.append(engine.last_logits(ids))
        halves = [home for home in engine.info.homes if ".ffn_up." in home.name]
        assert len(halves) == 3 and all(home.held_bytes <= home.n_bytes == 4 * 64 * 192 for home in halves)
        if mode == "resident":
            assert all(home.held_bytes == home.n_bytes for home in halves)
        if mode == "stream":
            assert 0 < sum(home.held_bytes for home in halves) < 3 * halves[0].n_bytes
        engine.shutdown()
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
