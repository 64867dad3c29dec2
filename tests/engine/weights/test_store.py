"""Claims on the tensors of a mapped file: where they lie, and each once. Not here: files that are refused
(models/test_listing.py).
"""

import numpy as np
import pytest

from engine.gguf.reader import read_gguf
from engine.gguf.writer import write_gguf
from engine.weights.store import Store
from tests.blocks import quantise


@pytest.fixture
def store(tmp_path):
    values = np.arange(24 * 32, dtype=np.float32).reshape(24, 32)
    tensors = [
        ("m", (32, 24), "Q8_0", quantise(values, "Q8_0")),
        ("v", (32,), "F32", quantise(values[1], "F32")),
        ("experts", (32, 8, 3), "Q8_0", quantise(values, "Q8_0")),
    ]
    path = write_gguf(tmp_path / "some.gguf", {"general.architecture": "llama"}, tensors)
    opened = Store(read_gguf(path))
    yield opened
    opened.close()


def test_addresses_point_at_the_bytes_of_the_file(store):
    matrix, vector = store.matrix("m", 32, 24), store.vector("v", 32)
    raw = store.gguf.path.read_bytes()
    for address, name in ((matrix.address, "m"), (vector.address, "v")):
        info = store.gguf.tensors[name]
        at = address - store.base
        assert bytes(store.bytes[at : at + info.n_bytes]) == raw[info.offset : info.offset + info.n_bytes]
    assert (matrix.blocks, matrix.n_panels, matrix.panel_bytes) == (1, 3, 8 * 34)


def test_experts_are_one_matrix_in_equal_parts(store):
    experts = store.experts("experts", 32, 8, 3)
    assert (experts.whole.n, experts.n, experts.count, experts.n_bytes) == (24, 8, 3, 8 * 34)
    assert store.matrices == [experts.whole]
    assert experts.whole.address == store.base + store.gguf.tensors["experts"].offset


def test_a_tensor_is_claimed_once(store):
    store.vector("v", 32)
    with pytest.raises(AssertionError, match="claimed twice"):
        store.vector("v", 32)
