"""Qwen3 with experts: wherever the experts lie, and files that are damaged or say nonsense.

transformers' logits: test_families.py; quantised beside llama.cpp: test_against_llamacpp.py; the same bits in every
way: test_identity.py.
"""

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.machine.host import read_machine
from engine.errors import BadModelFile, UnsupportedModel
from engine.generate import Engine, NotFinite
from engine.gguf.reader import read_gguf
from engine.gguf.writer import write_gguf
from engine.kernels.places import Places
from engine.kernels.program import Buffer
from engine.load import EngineOptions, load_engine
from engine.models.qwen3 import Model
from engine.models.shape import DecoderShape
from engine.sampling import Sampling
from tests.blocks import quantise
from tests.tiny_moe import tiny_qwen3moe

IDS = [int(i) for i in np.random.default_rng(7).integers(0, 320, 24)]


def load(path: Path, load_mode: str = "resident", **options: Any) -> Engine:
    return load_engine(path, EngineOptions(n_ctx=512, load_mode=load_mode, **options), read_machine())


def logits(engine: Engine, ids: list[int]) -> np.ndarray:
    return np.array(list(engine.logit_rows(ids)))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    loaded = load(tiny_qwen3moe(tmp_path / "m.gguf", quant="Q8_0"), "mmap", threads=2, threads_batch=2)
    yield loaded
    loaded.shutdown()


def model_of(engine: Engine) -> Model:
    return next(kept for kept in engine._m.keep if isinstance(kept, Model))


def test_an_expert_may_lie_anywhere_and_is_found_by_the_table_alone(engine: Engine) -> None:
    """What a cache of experts does between two barriers: copy one, say where, forget the old place."""
    places, ids = model_of(engine).places, IDS
    before = logits(engine, ids)
    elsewhere = []
    for layer, w in enumerate(model_of(engine).mixtures):
        for part, m in enumerate(w.parts):
            for expert in range(0, m.count, 2):
                copy = Buffer(m.n_bytes)
                ctypes.memmove(copy.address, int(places.words[layer, expert, part]), m.n_bytes)
                places.words[layer, expert, part] = copy.address
                elsewhere.append(copy)
    assert np.array_equal(logits(engine, ids), before)
    for copy in elsewhere:
        copy.view(np.uint8)[:] = 0
    assert not np.array_equal(logits(engine, ids), before)


def test_only_the_experts_of_a_row_are_touched(engine: Engine, tmp_path: Path) -> None:
    """With one row, addresses of all other experts may be rubbish."""
    places = model_of(engine).places
    want = logits(engine, [5])
    used = [_used(engine, layer) for layer in range(len(places.words))]
    for layer, experts in enumerate(used):
        for expert in set(range(places.n_experts)) - experts:
            places.words[layer, expert] = 8
    assert all(len(experts) == 4 for experts in used)
    assert np.array_equal(logits(engine, [5]), want)


def _used(engine: Engine, layer: int) -> set[int]:
    """The experts whose gate, taken away, changes the logits of a first token."""
    places, want, found = model_of(engine).places, logits(engine, [5]), set()
    nothing = Buffer(model_of(engine).mixtures[layer].gate.n_bytes)
    for expert in range(places.n_experts):
        kept = int(places.words[layer, expert, 0])
        places.words[layer, expert, 0] = nothing.address
        if not np.array_equal(logits(engine, [5]), want):
            found.add(expert)
        places.words[layer, expert, 0] = kept
    return found


def test_the_table_lies_layer_after_layer() -> None:
    places = Places(3, 5)
    places.fill(1, 8, 1000, 10)
    assert places.words[1, :, 1].tolist() == [1000, 1010, 1020, 1030, 1040]
    assert places.layer(2) - places.layer(0) == 2 * 5 * 32
    assert not places.words[0].any() and not places.words[2].any()


def test_a_router_that_is_no_number_fails_its_own_text_alone(tmp_path: Path) -> None:
    """Even where the damaged expert would not be chosen, and a text beside it with other experts lives on."""
    path = tiny_qwen3moe(tmp_path / "m.gguf", quant="F32", n_layers=1)
    gguf = read_gguf(path)
    data = bytearray(path.read_bytes())
    at = gguf.tensors["blk.0.ffn_gate_inp.weight"].offset
    data[at + 4 * 128 * 3 : at + 4 * 128 * 3 + 4] = np.float32(np.nan).tobytes()
    path.write_bytes(data)
    engine = load(path)
    seq = engine.open([5, 6, 7], Sampling(temperature=0.0), 2)
    with pytest.raises(NotFinite):
        engine.step(seq)
    engine.shutdown()


def shape_of(tmp_path: Path, **metadata: object) -> DecoderShape:
    keys = {f"qwen3moe.{key}": value for key, value in metadata.items()}
    return DecoderShape.read(read_gguf(tiny_qwen3moe(tmp_path / "s.gguf", **keys)))  # type: ignore[arg-type]


def test_the_numbers_of_experts(tmp_path: Path) -> None:
    shape = shape_of(tmp_path)
    assert (shape.n_experts, shape.n_used, shape.n_ff_exp, shape.head_dim, shape.rope_dim) == (13, 4, 96, 32, 32)
    assert shape_of(tmp_path, expert_feed_forward_length=None) == shape
    assert shape_of(tmp_path, expert_weights_norm=True, expert_gating_func=1, expert_weights_scale=1.0) == shape


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("expert_count", 0, "expert_count is 0; 1 to 4096"),
        ("expert_count", 1 << 31, "expert_count is 2147483648; 1 to 4096"),
        ("expert_count", None, "lack qwen3moe.expert_count"),
        ("expert_count", 14, r"ffn_gate_inp.weight has dimensions \(128, 13\); \(128, 14\) follow"),
        ("expert_used_count", 14, "expert_used_count is 14; 1 to 13"),
        ("expert_used_count", 0, "expert_used_count is 0"),
        ("expert_feed_forward_length", 64, r"ffn_gate_exps.weight has dimensions \(128, 96, 13\); \(128, 64, 13\)"),
        ("expert_weights_norm", False, "expert_weights_norm is False, which the qwen3moe model here does not compute"),
        ("expert_weights_scale", 2.5, "expert_weights_scale is 2.5"),
        ("expert_gating_func", 2, "expert_gating_func is 2"),
        ("expert_shared_count", 1, "'qwen3moe.expert_shared_count' .*is not known here"),
        ("leading_dense_block_count", 1, "'qwen3moe.leading_dense_block_count' .*is not known here"),
    ],
)
def test_what_is_absurd_or_not_computed_is_refused(key: str, value: object, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match=words):
        shape_of(tmp_path, **{key: value})


def test_experts_whose_rows_fill_no_panel_are_refused(tmp_path: Path) -> None:
    path = tiny_qwen3moe(tmp_path / "m.gguf", quant="F32", n_ff_exp=20)
    with pytest.raises(UnsupportedModel, match=r"ffn_gate_exps.weight has 20 rows an expert; a multiple of 8"):
        load(path)


def test_a_tensor_beside_the_family_is_a_leftover(tmp_path: Path) -> None:
    gguf = read_gguf(tiny_qwen3moe(tmp_path / "m.gguf", quant="F32"))
    data = gguf.path.read_bytes()
    tensors = [(t.name, t.dims, t.type.name, data[t.offset : t.offset + t.n_bytes]) for t in gguf.tensors.values()]
    shared = ("blk.0.ffn_gate_shexp.weight", (128, 8), "F32", quantise(np.zeros((8, 128), np.float32), "F32"))
    path = write_gguf(tmp_path / "n.gguf", gguf.metadata, [*tensors, shared])
    with pytest.raises(UnsupportedModel, match=r"1 tensors belong to no known part .*ffn_gate_shexp"):
        load(path)
