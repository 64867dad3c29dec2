"""The rows of families that are aliases or short files beside the others. Not here: what a row means (family.py)."""

from tests.families.dense import DENSE
from tests.families.family import Family

_GLM4 = {
    "post_self_attn_layernorm": "post_attention_norm", "post_attention_layernorm": "ffn_norm",
    "post_mlp_layernorm": "post_ffw_norm",
}  # fmt: skip
_granite = DENSE["granite"]

BESIDE: dict[str, Family] = {
    # No such classes in transformers: the same maths under other names.
    "internlm2": Family(
        "LlamaForCausalLM", "internlm2", {"rms_norm_eps": 1e-5, "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e6}}, {"rope.dimension_count": 16}, permuted=True,
    ),
    "llama-biased": Family(
        "LlamaForCausalLM", "llama", {"rms_norm_eps": 1e-5, "attention_bias": True},
        {"rope.dimension_count": 16, "vocab_size": 272}, permuted=True,
    ),
    # llama.cpp leaves this family's window out.
    "mistral": Family(
        "MistralForCausalLM", "llama", {"rms_norm_eps": 1e-5, "sliding_window": 24},
        {"attention.sliding_window": 24, "rope.dimension_count": 16, "vocab_size": 272}, permuted=True, peer=False,
    ),
    "minicpm": Family(
        _granite.model, "minicpm", {**_granite.config, "attention_multiplier": 0.25}, {
            **_granite.keys, "attention.scale": None}, permuted=True,
    ),
    "ernie4_5": Family(
        "Ernie4_5ForCausalLM", "ernie4_5", {"rms_norm_eps": 1e-5, "head_dim": 32, "tie_word_embeddings": True,
                                            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    ),
    "seed_oss": Family(
        "SeedOssForCausalLM", "seed_oss", {"rms_norm_eps": 1e-6, "head_dim": 32, "attention_bias": True,
                                           "attention_out_bias": False, "residual_dropout": 0.0},
        names={"post_attention_layernorm": "post_attention_norm"},
    ),
    "glm4": Family(
        "Glm4ForCausalLM", "glm4", {"rms_norm_eps": 1e-5, "head_dim": 32, "attention_bias": True, "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
        {"rope.dimension_count": 16}, names=_GLM4,
    ),
}  # fmt: skip
