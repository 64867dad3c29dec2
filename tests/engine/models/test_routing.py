"""What files of the big mixtures say of their routing and their attention: read, or refused by name."""

from dataclasses import replace
from pathlib import Path

import pytest

from engine.cache.layout import position_bytes
from engine.errors import BadModelFile
from engine.footprint import ModelFacts, cache_bytes
from engine.gguf.reader import GgufFile, read_gguf
from engine.models.routing import Routing
from engine.models.shape import DecoderShape
from tests.families import FAMILIES
from tests.families.convert import draw_checkpoint, write_family
from tests.families.stored import load


def made(tmp_path: Path, name: str, **keys: object) -> GgufFile:
    """A row's file, some of its keys changed; None leaves one out."""
    family = FAMILIES[name]
    path = tmp_path / "m.gguf"
    changed = replace(family, keys={**family.keys, **keys})  # type: ignore[dict-item]
    write_family(path, changed, draw_checkpoint(family, load(name).shapes))
    return read_gguf(path)


def test_each_mixture_routes_as_its_file_says(tmp_path: Path) -> None:
    found = {
        name: DecoderShape.read(made(tmp_path, name)).routing
        for name in ("qwen2moe", "deepseek2-lite", "deepseek2-v3", "gpt-oss", "glm4moe")
    }
    assert found == {
        "qwen2moe": Routing(is_share=False),
        "deepseek2-lite": Routing(is_share=False),
        "deepseek2-v3": Routing(True, True, 2.5, 4, 2, 2),
        "gpt-oss": Routing(is_share=True),
        "glm4moe": Routing(True, True, 1.5),
    }


def test_groups_of_a_softmax_are_known_by_their_best_expert(tmp_path: Path) -> None:
    keys = {"expert_count": 10, "expert_group_count": 5, "expert_group_used_count": 2, "expert_weights_scale": 16.0}
    assert DecoderShape.read(made(tmp_path, "deepseek2-lite", **keys)).routing == Routing(False, False, 16.0, 5, 2, 1)


def test_scores_that_a_file_does_not_name_follow_from_the_bias_of_the_choice(tmp_path: Path) -> None:
    shape = DecoderShape.read(made(tmp_path, "deepseek2-v3", expert_gating_func=None))
    assert shape.routing.is_sigmoid


@pytest.mark.parametrize(
    ("name", "key", "value", "words"),
    [
        ("deepseek2-v3", "expert_gating_func", 4, "expert_gating_func is 4; 1 .softmax., 2"),
        ("deepseek2-v3", "expert_gating_func", 1, r"belong to no known part .*exp_probs_b.bias"),
        ("glm4moe", "expert_gating_func", 1, r"belong to no known part .*exp_probs_b.bias"),
        ("deepseek2-v3", "expert_group_count", 5, "expert_group_count 5 and expert_group_used_count 2 do not fit 16"),
        ("deepseek2-v3", "expert_group_count", 16, "expert_group_count 16 and expert_group_used_count 2 do not fit"),
        ("deepseek2-v3", "expert_group_used_count", 5, "expert_group_used_count is 5; 0 to 4"),
        ("deepseek2-v3", "expert_weights_scale", -0.5, "expert_weights_scale is -0.5; a number above 0"),
        ("deepseek2-v3", "attention.kv_lora_rank", 60, "kv_lora_rank is 60; a multiple of 8"),
        ("deepseek2-v3", "attention.kv_lora_rank", 56, r"attention.key_length is 80, which the deepseek2 model here"),
        ("deepseek2-v3", "attention.key_length_mla", None, "lack deepseek2.attention.key_length_mla"),
        ("deepseek2-v3", "attention.q_lora_rank", None, r"the tensor blk.0.attn_q.weight is missing"),
        ("deepseek2-v3", "rope.scaling.yarn_log_multiplier", None, "yarn without a yarn_log_multiplier above 0"),
        ("deepseek2-v3", "attention.temperature_scale", 0.1, "'deepseek2.attention.temperature_scale' .*not known"),
        ("deepseek2-v3", "leading_dense_block_count", 3, "leading_dense_block_count is 3; 0 to 2"),
        ("deepseek2-kv_b", "attention.value_length", 8, r"value_length is 8; 16 or more"),
        ("glm4moe", "nextn_predict_layers", 0, r"the tensor blk.3|belong to no known part"),
        ("glm4moe", "nextn_predict_layers", 4, "nextn_predict_layers is 4; 0 to 3"),
        ("glm4moe", "rope.dimension_sections", [8, 8, 0, 0], "'glm4moe.rope.dimension_sections' .*is not known here"),
        ("gpt-oss", "attention.sliding_window", None, "lack gpt-oss.attention.sliding_window"),
        ("gpt-oss", "expert_count", 12, "expert_count is 12; a multiple of 8 runs"),
        ("qwen2moe", "expert_shared_feed_forward_length", 32, r"ffn_gate_shexp.weight has dimensions \(64, 64\)"),
    ],
)  # fmt: skip
def test_what_is_absurd_or_not_computed_is_refused(
    name: str, key: str, value: object, words: str, tmp_path: Path
) -> None:
    with pytest.raises(BadModelFile, match=words):
        DecoderShape.read(made(tmp_path, name, **{key: value}))


def test_a_row_of_compressed_keys_costs_what_the_formula_says(tmp_path: Path) -> None:
    """One key of rank + rope values and one value of rank values for all heads; of old files one of each per head."""
    new, old = (DecoderShape.read(made(tmp_path, name)) for name in ("deepseek2-v3", "deepseek2-kv_b"))
    assert cache_bytes(new, 512, "f16", "f16") == 3 * 512 * 2 * (64 + 16 + 64)
    assert cache_bytes(old, 512, "f16", "f16") == 3 * 512 * 2 * 4 * (32 + 16 + 32)
    assert position_bytes(new.head_dim, new.v_dim, "f32", "q8_0") == 80 * 4 + 64 * 34 // 32


def test_layers_that_nobody_computes_take_no_memory(tmp_path: Path) -> None:
    gguf = made(tmp_path, "glm4moe")
    facts = ModelFacts.of(gguf, DecoderShape.read(gguf))
    behind = sum(t.n_bytes for name, t in gguf.tensors.items() if name.startswith("blk.3."))
    assert behind > 0 and facts.weights_bytes == sum(t.n_bytes for t in gguf.tensors.values()) - behind


def test_biases_of_experts_are_no_experts(tmp_path: Path) -> None:
    gguf = made(tmp_path, "gpt-oss")
    facts = ModelFacts.of(gguf, DecoderShape.read(gguf))
    assert facts.experts is not None
    assert facts.experts.largest_bytes == 3 * 64 * 64 * 4 and facts.experts.n_bytes == 4 * 8 * 3 * 64 * 64 * 4
