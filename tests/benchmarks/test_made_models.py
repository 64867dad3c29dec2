"""Made models hold what their names say, and the values of a real file's size. Not here: what is measured on them."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.blocks import MADE, random_blocks
from benchmarks.models import Size, make, type_of
from engine.gguf.reader import read_gguf
from engine.models.shape import DecoderShape
from engine.quants.registry import TYPES
from tests.blocks import dequantise

SMALL = Size(n_layers=2, n_embd=256, n_ff=512, n_heads=4, n_kv_heads=2)


@pytest.mark.parametrize("type_name", [name for name in MADE if name in TYPES])
def test_random_blocks_have_the_spread_asked_for(type_name: str) -> None:
    data = random_blocks(type_name, 1 << 16, 0.02, np.random.default_rng(5))
    values = dequantise(data.tobytes(), type_name, (1 << 16,))
    assert np.isfinite(values).all()
    assert 0.02 * 0.8 < values.std() < 0.02 * 1.3
    assert abs(values.mean()) < 0.02 * 0.2


def test_the_same_name_gives_the_same_bytes_and_a_model_that_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    one, two = make(tmp_path / "m.gguf", SMALL, "Q4_0"), make(tmp_path / "b" / "m.gguf", SMALL, "Q4_0")
    assert one.read_bytes() == two.read_bytes()
    gguf = read_gguf(one)
    shape = DecoderShape.read(gguf)
    assert (shape.n_layers, shape.n_embd, shape.n_ff, shape.n_vocab) == (2, 256, 512, 49152)
    assert {t.type.name for t in gguf.tensors.values()} == {"Q4_0", "F32"}
    starts = [gguf.tensors[f"blk.0.attn_{x}.weight"].offset for x in "qk"]
    q, k = (one.read_bytes()[at : at + 4096] for at in starts)
    assert q != k, "each matrix begins elsewhere in the random blocks"


def test_a_mix_spends_six_bits_where_llama_cpps_quantiser_does() -> None:
    """The layers that llama-quantize gives Q6_K to, of 16, as its files list them."""
    six = [i for i in range(16) if type_of("Q4_K_M", f"blk.{i}.ffn_down.weight", 16) == "Q6_K"]
    assert six == [0, 1, 4, 7, 10, 13, 14, 15]
    assert six == [i for i in range(16) if type_of("Q4_K_M", f"blk.{i}.attn_v.weight", 16) == "Q6_K"]
    assert type_of("Q4_K_M", "output.weight", 16) == "Q6_K"
    assert type_of("Q5_K_M", "blk.0.attn_q.weight", 16) == type_of("Q5_K_M", "token_embd.weight", 16) == "Q5_K"
