"""A decoder's numbers: absurd, foreign or unobeyed ones are refused by key, and good files keep their meaning."""

import math
import struct
from pathlib import Path

import pytest

from engine.errors import BadModelFile, UnsupportedModel
from engine.gguf.reader import Value, read_gguf
from engine.models.registry import ARCHITECTURES, architecture
from engine.models.shape import DecoderShape, RopeScaling
from tests import raw_gguf as raw
from tests.blocks import quantise
from tests.raw_gguf import ARR, F32, I32, STR, U32, Raw
from tests.tiny import tiny_llama, tiny_mixed

GOOD = raw.llama()


def shape_of(file: Raw, tmp_path: Path) -> DecoderShape:
    return DecoderShape.read(read_gguf(file.write(tmp_path / "m.gguf")))


def tiny_shape(tmp_path: Path, **options: object) -> DecoderShape:
    return DecoderShape.read(read_gguf(tiny_llama(tmp_path / "t.gguf", **options)))  # type: ignore[arg-type]


def test_the_sane_file(tmp_path: Path) -> None:
    shape = shape_of(GOOD, tmp_path)
    assert (shape.n_layers, shape.n_embd, shape.n_ff, shape.n_vocab) == (2, 64, 96, 40)
    assert (shape.n_heads, shape.n_kv_heads, shape.head_dim, shape.rope_dim) == (2, 1, 32, 32)
    assert shape.rope_base == 10000.0 and shape.rope_scaling == RopeScaling() and not shape.tied
    assert shape.n_ctx_train == 128 and shape.eps == pytest.approx(1e-5)


@pytest.mark.parametrize("drop", ["general.alignment", "llama.rope.dimension_count", "llama.rope.freq_base"])
def test_keys_with_a_default(drop: str, tmp_path: Path) -> None:
    assert shape_of(GOOD.drop(drop), tmp_path) == shape_of(GOOD, tmp_path)


def test_mixed_tied_and_wide_headed_models(tmp_path: Path) -> None:
    assert DecoderShape.read(read_gguf(tiny_mixed(tmp_path / "m.gguf"))).n_embd == 128
    assert tiny_shape(tmp_path, tied=True).tied
    wide = tiny_shape(tmp_path, n_embd=64, n_heads=2, n_kv_heads=1, head_dim=64)
    assert (wide.head_dim, wide.n_heads * wide.head_dim) == (64, 128)


def test_one_number_per_layer_if_all_are_equal(tmp_path: Path) -> None:
    def kv(*counts: int) -> Raw:
        value = raw.array(U32, len(counts), b"".join(map(raw.u32, counts)))
        return GOOD.put("llama.attention.head_count_kv", ARR, value)

    assert shape_of(kv(1, 1), tmp_path) == shape_of(GOOD, tmp_path)
    with pytest.raises(BadModelFile, match="has 3 numbers"):
        shape_of(kv(1, 1, 1), tmp_path)
    with pytest.raises(UnsupportedModel, match="differs between layers"):
        shape_of(kv(1, 2), tmp_path)
    with pytest.raises(BadModelFile, match="holds 0"):
        shape_of(kv(1, 0), tmp_path)
    with pytest.raises(BadModelFile, match="integers"):
        shape_of(GOOD.put("llama.attention.head_count_kv", ARR, raw.strings(["1", "1"])), tmp_path)


@pytest.mark.parametrize(
    ("key", "kind", "value"),
    [
        ("attention.head_count", U32, raw.u32(0)),
        ("attention.head_count", F32, raw.f32(2.5)),
        ("attention.head_count_kv", U32, raw.u32(0)),
        ("attention.head_count_kv", U32, raw.u32(3)),
        ("attention.head_count_kv", I32, struct.pack("<i", -1)),
        ("block_count", U32, raw.u32(0)),
        ("block_count", U32, raw.u32(1)),
        ("block_count", U32, raw.u32(3)),
        ("block_count", U32, raw.u32(1 << 31)),
        ("block_count", STR, raw.string("2")),
        ("block_count", raw.BOOL, b"\x01"),
        ("embedding_length", U32, raw.u32(0)),
        ("embedding_length", U32, raw.u32(66)),
        ("embedding_length", U32, raw.u32(65)),
        ("feed_forward_length", U32, raw.u32(0)),
        ("context_length", U32, raw.u32(0)),
        ("attention.layer_norm_rms_epsilon", F32, raw.f32(float("nan"))),
        ("attention.layer_norm_rms_epsilon", F32, raw.f32(-1.0)),
        ("attention.layer_norm_rms_epsilon", F32, raw.f32(0.0)),
        ("attention.layer_norm_rms_epsilon", F32, raw.f32(float("inf"))),
        ("attention.layer_norm_rms_epsilon", U32, raw.u32(1)),
        ("rope.freq_base", F32, raw.f32(0.0)),
        ("rope.freq_base", F32, raw.f32(float("nan"))),
        ("rope.dimension_count", U32, raw.u32(1000)),
        ("rope.dimension_count", U32, raw.u32(0)),
        ("rope.dimension_count", U32, raw.u32(31)),
        ("attention.key_length", U32, raw.u32(0)),
    ],
)
def test_absurd_numbers_are_refused(key: str, kind: int, value: bytes, tmp_path: Path) -> None:
    with pytest.raises(BadModelFile) as error:
        shape_of(GOOD.put(f"llama.{key}", kind, value), tmp_path)
    words = str(error.value)
    named = "blk.2" if value == raw.u32(3) and key == "block_count" else "token_embd" if value == raw.u32(66) else key
    assert words.startswith("'m.gguf': ") and named in words


@pytest.mark.parametrize("key", ["block_count", "context_length", "embedding_length", "attention.head_count"])
def test_a_missing_key_is_named(key: str, tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match=f"lack llama.{key}"):
        shape_of(GOOD.drop(f"llama.{key}"), tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (GOOD.drop("general.architecture"), "lack general.architecture"),
        (GOOD.put("general.architecture", U32, raw.u32(1)), "not a string"),
        (GOOD.put("general.architecture", STR, raw.string("../../etc")), "'../../etc' is not supported"),
        (GOOD.put("general.architecture", STR, raw.string("mamba")), "; supported: "),
        (GOOD.put("general.type", STR, raw.string("adapter")), "a part of a model"),
        (GOOD.put("split.count", U32, raw.u32(3)), "part of a model in '3' files"),
        (GOOD.put("tokenizer.ggml.scores", ARR, raw.array(F32, 10, raw.f32(0) * 10)), "scores has 10 entries"),
        (GOOD.put("tokenizer.ggml.tokens", ARR, raw.strings(["a"] * 41)), "tokens has 41 entries"),
        (GOOD.put("tokenizer.ggml.tokens", STR, raw.string("a")), "tokens is no array"),
        (GOOD.tensor("blk.1.ffn_up.weight", name="blk.1.other.weight"), "blk.1.ffn_up.weight is missing"),
        (GOOD.tensor("blk.0.attn_k.weight", dims=(32, 64)), "blk.0.attn_k.weight has dimensions (32, 64)"),
        (GOOD.tensor("blk.0.attn_norm.weight", kind=1), "blk.0.attn_norm.weight is F16"),
        (GOOD.tensor("token_embd.weight", name="embd.weight"), "no matrix token_embd.weight"),
    ],
)
def test_files_that_are_no_whole_model_here(change: Raw, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadModelFile) as error:
        shape_of(change, tmp_path)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("expert_weights_scale", 2.5),
        ("logit_scale", 0.125),
        ("residual_scale", 0.5),
        ("embedding_scale", 12.0),
        ("attention.scale", 0.5),
        ("attention.causal", False),
        ("use_parallel_residual", True),
        ("attention.clamp_kqv", 8.0),
        ("final_logit_softcapping", 30.0),
        ("rope.scaling.type", "longrope"),
        ("rope.scaling.attn_factor", 1.5),
        ("never_seen", [0, 1]),
        ("never_seen_word", "gelu"),
    ],
)
def test_a_key_that_changes_the_maths_is_refused_by_name(key: str, value: Value, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=f"llama.{key}"):
        tiny_shape(tmp_path, **{f"llama.{key}": value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("expert_count", 0),
        ("expert_used_count", 0),
        ("logit_scale", 1.0),
        ("attention.scale", 0.1767766952966369),
        ("attention.causal", True),
        ("attention.sliding_window", 4096),
        ("attention.clamp_kqv", 0.0),
        ("rope.scaling.type", "none"),
        ("rope.scaling.factor", 1.0),
        ("tensor_data_layout", "Meta AI original pth"),
        ("vocab_size", 320),
    ],
)
def test_a_key_that_changes_nothing_is_no_reason_to_refuse(key: str, value: Value, tmp_path: Path) -> None:
    assert tiny_shape(tmp_path, **{f"llama.{key}": value}) == tiny_shape(tmp_path)


def test_stretched_positions(tmp_path: Path) -> None:
    def scaling(**keys: Value) -> RopeScaling:
        return tiny_shape(tmp_path, **{f"llama.rope.{key}": value for key, value in keys.items()}).rope_scaling

    assert scaling(**{"scaling.type": "linear", "scaling.factor": 4.0}) == RopeScaling("linear", 4.0, 512)
    assert scaling(**{"scaling.factor": 4.0}).type == "linear"
    assert scaling(scale_linear=2.0) == RopeScaling("linear", 2.0, 512)
    assert scaling(**{"scaling.type": "none", "scaling.factor": 4.0}) == RopeScaling()
    yarn = {"scaling.type": "yarn", "scaling.factor": 8.0, "scaling.original_context_length": 64}
    assert scaling(**yarn) == RopeScaling("yarn", 8.0, 64, 1.0, 1.0, 32.0, 1.0)
    tuned = scaling(**yarn, **{"scaling.yarn_beta_fast": 16.0, "scaling.attn_factor": 0.5})
    assert (tuned.beta_fast, tuned.attn_factor) == (16.0, 0.5)
    whole = scaling(**yarn, **{"scaling.yarn_attn_factor": 1.5})
    assert whole.attn_factor * (1 + 0.1 * math.log(8)) == pytest.approx(1.5)
    with pytest.raises(BadModelFile, match="factor is nan"):
        scaling(**{"scaling.factor": float("nan")})


def test_divisors_of_positions_in_a_tensor(tmp_path: Path) -> None:
    def freqs(n: int) -> list[object]:
        return [("rope_freqs.weight", (n,), "F32", quantise([1.0] * n, "F32"))]  # type: ignore[arg-type]

    assert tiny_shape(tmp_path, extra=freqs(16)).rope_scaling.type == "llama3"
    with pytest.raises(BadModelFile, match="rope_freqs"):
        tiny_shape(tmp_path, extra=freqs(8))
    with pytest.raises(UnsupportedModel, match="rope_freqs"):
        tiny_shape(tmp_path, extra=freqs(16), **{"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 2.0})


def test_the_registry_names_modules_and_imports_none(tmp_path: Path) -> None:
    assert architecture(read_gguf(GOOD.write(tmp_path / "m.gguf"))) == "llama"
    assert all(isinstance(module, str) and module.startswith("engine.models.") for module in ARCHITECTURES.values())


def test_heads_that_no_vector_holds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="heads have 36 values; a multiple of 8 runs"):
        tiny_shape(tmp_path, head_dim=36, n_heads=8, quant="F16")
