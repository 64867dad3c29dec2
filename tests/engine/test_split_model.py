"""A model in several files gives the bits of the same model in one: mapped, copied, streamed. Not here: its header."""

import os
from pathlib import Path

import pytest

from benchmarks.identity import Verdict, Way, every_type, prompts
from engine.budget import Machine
from engine.errors import BadModelFile, ModelFileChanged
from engine.gguf.reader import read_gguf
from engine.load import EngineOptions, load_engine
from engine.sampling import Sampling
from engine.weights.store import Store
from tests.splits import split
from tests.tiny_moe import mixed_experts

MACHINE = Machine(1 << 34, None, 2, (0, 1), None)


def test_parts_mapped_copied_and_streamed_give_the_same_bits(tmp_path: Path) -> None:
    whole = every_type(tmp_path / "m.gguf")
    verdict = Verdict(whole, prompts(3, 320, 70))
    verdict.path = split(whole, tmp_path, (0, 9, 1, 6, 0))[2]
    total = sum(tensor.n_bytes for tensor in read_gguf(whole).tensors.values())
    for way in (
        Way(2, 64, "mmap"),
        Way(1, 512, "resident"),
        Way(2, 64, "stream", ring=50_000),
        Way(2, 7, "stream", pinned=total // 3, ring=200_000),
    ):
        verdict.check(way)
    assert verdict.n_wrong == 0


def test_experts_of_one_layer_may_lie_in_different_parts(tmp_path: Path) -> None:
    whole = mixed_experts(tmp_path / "m.gguf")
    infos = sorted(read_gguf(whole).tensors.values(), key=lambda info: info.offset)
    at = [i for i, info in enumerate(infos) if "_exps" in info.name]
    verdict = Verdict(whole, prompts(3, 320, 70))
    verdict.path = split(whole, tmp_path, (at[0] + 1, at[1] - at[0], 0))[0]  # between two of the first three
    for experts in (64 << 20, 1):
        verdict.check(Way(2, 64, "stream", ring=50_000, experts=experts))
    assert verdict.n_wrong == 0


@pytest.mark.parametrize("mode", ["mmap", "stream"])
def test_a_part_that_changes_while_it_is_read_is_noticed(mode: str, tmp_path: Path) -> None:
    paths = split(every_type(tmp_path / "m.gguf"), tmp_path, (4, 9, 0))
    options = EngineOptions(512, 2, 2, ubatch_size=64, load_mode=mode, spec_type="none", pinned_bytes=0)
    engine = load_engine(paths[0], options, MACHINE)
    sequence = engine.open([5, 9, 100], Sampling(temperature=0.0), 20)
    engine.step(sequence)
    os.utime(paths[1], ns=(0, 0))
    with pytest.raises(ModelFileChanged, match=r"m-00002-of-00003.gguf was written to"):
        for _ in range(5):
            engine.step(sequence)
    engine.shutdown()


def test_a_part_that_was_replaced_after_its_header_was_read_is_refused(tmp_path: Path) -> None:
    paths = split(every_type(tmp_path / "m.gguf"), tmp_path, (4, 9, 0))
    gguf = read_gguf(paths[0])
    with paths[1].open("ab") as file:
        file.write(b"more")
    with pytest.raises(BadModelFile, match=r"m-00002-of-00003.gguf changed while it was being loaded"):
        Store(gguf)
