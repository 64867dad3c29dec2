"""What is written comes back, byte for byte where it matters; half-written files never stand under the name."""

from pathlib import Path

import numpy as np
import pytest

from engine.errors import BadModelFile
from engine.gguf.reader import read_gguf
from engine.gguf.writer import write_gguf
from tests.blocks import dequantise, quantise
from tests.raw_gguf import Raw, string, u32
from tests.tiny import tensor_f32, tiny_llama, tiny_mixed

METADATA = {
    "s": "text ä",
    "u": 7,
    "i": -7,
    "big": 1 << 40,
    "low": -(1 << 40),
    "f": 0.5,
    "b": True,
    "ints": [1, -2],
    "words": ["a", "", "\udcff"],
    "flags": [True, False],
    "reals": [0.25, 4.0],
    "none": [],
    "nested": [[1], [2, 3]],
}


def test_every_kind_comes_back(tmp_path: Path) -> None:
    gguf = read_gguf(write_gguf(tmp_path / "m.gguf", METADATA, []))
    assert gguf.metadata == METADATA
    kinds = {k: gguf.kinds[k] for k in ("u", "i", "big", "low", "f", "b", "ints", "words", "nested")}
    assert list(kinds.values()) == [
        "uint32", "int32", "uint64", "int64", "float32", "bool", "array[int32]", "array[string]", "array[array]",
    ]  # fmt: skip
    again = read_gguf(write_gguf(tmp_path / "n.gguf", gguf.metadata, [], gguf.kinds))
    assert again.metadata == METADATA and again.kinds == gguf.kinds


def test_the_bytes_are_those_of_the_format(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {"a": "x", "n": 3}, [("w", (8,), "F32", bytes(32))])
    by_hand = Raw((("a", 8, string("x")), ("n", 4, u32(3))), (("w", (8,), 0, 0),), bytes(32))
    assert path.read_bytes() == by_hand.bytes()


def test_alignment_is_obeyed(tmp_path: Path) -> None:
    two = [("a", (3,), "F32", bytes(12)), ("b", (3,), "F32", bytes(12))]
    gguf = read_gguf(write_gguf(tmp_path / "m.gguf", {"general.alignment": 128}, two))
    assert [t.offset - gguf.data_offset for t in gguf.tensors.values()] == [0, 128] and gguf.data_offset % 128 == 0


def test_data_of_the_wrong_size_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match="36 are expected"):
        write_gguf(tmp_path / "m.gguf", {}, [("w", (32, 2), "Q4_0", bytes(35))])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("type_name", "bound"), [
    ("F32", 0.0), ("F16", 2e-3), ("BF16", 2e-2), ("Q8_0", 2e-2), ("Q4_0", 0.35), ("Q4_1", 0.25),
])  # fmt: skip
def test_blocks_come_back_within_their_step(type_name: str, bound: float) -> None:
    x = np.random.default_rng(1).normal(0, 1, (8, 64)).astype(np.float32)
    back = dequantise(quantise(x, type_name), type_name, x.shape)
    assert np.abs(back - x).max() <= bound
    zeros = np.zeros((1, 32), np.float32)
    assert not dequantise(quantise(zeros, type_name), type_name, (1, 32)).any()


def test_tiny_models_are_the_same_each_time_and_read_back(tmp_path: Path) -> None:
    one, two = tiny_llama(tmp_path / "a.gguf", seed=3), tiny_llama(tmp_path / "b.gguf", seed=3)
    assert one.read_bytes() == two.read_bytes()
    gguf = read_gguf(tiny_mixed(tmp_path / "c.gguf"))
    assert {t.type.name for t in gguf.tensors.values()} == {"Q4_0", "Q4_1", "Q8_0", "F16", "BF16", "F32"}
    assert tensor_f32(gguf, "blk.0.ffn_down.weight").shape == (128, 192)
