"""BitNet's I2_S, whose scale stands behind a whole tensor: unfolded while it is loaded. Not here: its kernels."""

from pathlib import Path

import numpy as np
import pytest

from appliance.machine.host import read_machine
from engine.errors import UnsupportedModel
from engine.gguf.reader import read_gguf
from engine.gguf.writer import write_gguf
from engine.load import EngineOptions, load_engine
from tests.blocks import dequantise, quantise
from tests.tiny import tiny_llama

IDS = [1, 5, 9, 200, 31, 77, 4, 18]
SCALE = np.float32(0.03125)  # f16 has it too, so that TQ2_0 can hold the same weights


def i2_s(values: np.ndarray) -> bytes:
    """Rows of -1, 0, 1 times one number, as BitNet's quantiser lays them out: 128 weights in 32 bytes, four a byte."""
    d = np.abs(values).max()
    q = (np.rint(values / d) + 1).astype(np.uint8).reshape(-1, 4, 32)
    packed = q[:, 0] << 6 | q[:, 1] << 4 | q[:, 2] << 2 | q[:, 3]
    return packed.tobytes() + d.astype(np.float32).tobytes() + bytes(28)


def ternary(path: Path, kind: str, everywhere: bool = False) -> Path:
    """A tiny model whose matrices are -SCALE, 0 and SCALE, of either type; embedding and output are F32."""
    source = read_gguf(tiny_llama(path.with_suffix(".f32"), quant="F32", n_embd=256, n_ff=512))
    raw = np.fromfile(source.path, np.uint8)
    tensors = []
    for name, info in source.tensors.items():
        data = raw[info.offset : info.offset + info.n_bytes].tobytes()
        if len(info.dims) == 1 or (not name.startswith("blk.") and not everywhere):
            tensors.append((name, info.dims, "F32", data))
            continue
        values = dequantise(data, "F32", info.dims[::-1])
        values = np.clip(np.rint(values / np.abs(values).mean()), -1, 1) * SCALE
        tensors.append((name, info.dims, kind, i2_s(values) if kind == "I2_S" else quantise(values, kind)))
    return write_gguf(path, source.metadata, tensors, source.kinds)


def logits(path: Path) -> np.ndarray:
    engine = load_engine(path, EngineOptions(n_ctx=256), read_machine())
    try:
        return np.stack([row.copy() for row in engine.logit_rows(IDS)])
    finally:
        engine.shutdown()


def test_the_same_weights_give_the_same_bits_as_in_another_ternary_type(tmp_path: Path) -> None:
    folded = logits(ternary(tmp_path / "folded.gguf", "I2_S"))
    assert np.isfinite(folded).all() and folded.std() > 0.1
    assert folded.tobytes() == logits(ternary(tmp_path / "other.gguf", "TQ2_0")).tobytes()


def test_weights_that_are_not_unfolded_are_refused(tmp_path: Path) -> None:
    path = ternary(tmp_path / "folded.gguf", "I2_S")
    with pytest.raises(UnsupportedModel, match=r"I2_S weights are unfolded .* need load_mode resident and not mmap"):
        load_engine(path, EngineOptions(n_ctx=256, load_mode="mmap"), read_machine())


def test_a_table_to_look_up_cannot_be_folded(tmp_path: Path) -> None:
    path = ternary(tmp_path / "table.gguf", "I2_S", everywhere=True)
    with pytest.raises(UnsupportedModel, match=r"the tensor token_embd\.weight is I2_S, .* for whole matrices only"):
        load_engine(path, EngineOptions(n_ctx=256), read_machine())
