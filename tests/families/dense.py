"""The rows of families without experts. Not here: what a row means (family.py)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.families.convert import POST_NORMS
from tests.families.family import Draw, Family, Weights

_WINDOW = 24


def _llama3_factors(config: Mapping[str, Any], draw: Draw) -> Weights:
    """rope_freqs.weight: what each frequency is divided by (Llama 3.1's rope, arXiv 2407.21783)."""
    rope = config["rope_parameters"]
    dim, factor, trained = config["head_dim"], rope["factor"], rope["original_max_position_embeddings"]
    turns = trained * rope["rope_theta"] ** (-np.arange(0, dim, 2) / dim) / (2 * np.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = (turns - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    factors = np.where(turns > high, 1.0, np.where(turns < low, factor, between))
    return {"rope_freqs.weight": factors.astype(np.float32)}


def _long_factors(config: Mapping[str, Any], draw: Draw) -> Weights:
    rope = config["rope_parameters"]
    return {f"rope_factors_{n}.weight": np.array(rope[f"{n}_factor"], np.float32) for n in ("long", "short")}


def _longrope(dims: int, trained: int, **more: Any) -> dict[str, Any]:
    n = dims // 2
    return {
        "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": trained,
        "short_factor": [1.0 + 0.05 * i for i in range(n)], "long_factor": [1.0 + 0.5 * i for i in range(n)], **more,
    }  # fmt: skip


def _attn_factor(config_length: int, trained: int) -> float:
    """LongRoPE's magnitude (arXiv 2402.13753)."""
    return float(np.sqrt(1 + np.log(config_length / trained) / np.log(trained)))


DENSE: dict[str, Family] = {
    "llama": Family(
        "LlamaForCausalLM", "llama",
        {"head_dim": 16, "rms_norm_eps": 1e-5, "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 50000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
        {"rope.dimension_count": 16, "vocab_size": 272}, permuted=True, extra=_llama3_factors,
    ),
    "smollm3": Family(
        "SmolLM3ForCausalLM", "smollm3", {"num_hidden_layers": 5, "rms_norm_eps": 1e-6},
        {"rope.dimension_count": 16, "vocab_size": 272}, permuted=True,
    ),
    "qwen2": Family(
        "Qwen2ForCausalLM", "qwen2", {"tie_word_embeddings": True, "rms_norm_eps": 1e-6,
                                      "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ),
    "qwen2-yarn": Family(
        "Qwen2ForCausalLM", "qwen2", {"rms_norm_eps": 1e-6, "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32}},
    ),
    "qwen3": Family(
        "Qwen3ForCausalLM", "qwen3", {"tie_word_embeddings": True, "rms_norm_eps": 1e-6, "head_dim": 32,
                                      "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ),
    "gemma2": Family(
        "Gemma2ForCausalLM", "gemma2",
        {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": _WINDOW, "rms_norm_eps": 1e-6,
         "attn_logit_softcapping": 5.0, "final_logit_softcapping": 6.0, "num_hidden_layers": 4},
        {"attention.sliding_window": _WINDOW, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 6.0,
         "rope.freq_base": None},
        POST_NORMS, from_zero=True,
    ),
    "gemma3": Family(
        "Gemma3ForCausalLM", "gemma3",
        {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": _WINDOW, "rms_norm_eps": 1e-6,
         "num_hidden_layers": 7, "rope_parameters": {
             "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
             "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
        {"attention.sliding_window": _WINDOW}, POST_NORMS, from_zero=True,
    ),
    "gemma": Family(
        "GemmaForCausalLM", "gemma", {"head_dim": 32, "rms_norm_eps": 1e-6}, {"rope.freq_base": None}, from_zero=True,
    ),
    "command-r": Family(
        "CohereForCausalLM", "command-r", {"layer_norm_eps": 1e-5, "logit_scale": 0.25},
        {"attention.layer_norm_epsilon": 1e-5, "logit_scale": 0.25, "rope.scaling.type": "none",
         "rope.dimension_count": 16},
    ),
    "cohere2": Family(
        "Cohere2ForCausalLM", "cohere2",
        {"layer_norm_eps": 1e-5, "logit_scale": 0.25, "sliding_window": _WINDOW, "num_hidden_layers": 5},
        {"attention.layer_norm_epsilon": 1e-5, "logit_scale": 0.25, "attention.sliding_window": _WINDOW,
         "rope.scaling.type": "none", "rope.dimension_count": 16},
    ),
    # llama.cpp has a window where there are 64 layers.
    "exaone4": Family(
        "Exaone4ForCausalLM", "exaone4", {"rms_norm_eps": 1e-5, "sliding_window": _WINDOW, "num_hidden_layers": 5},
        {"attention.sliding_window": _WINDOW,
         "attention.sliding_window_pattern": [True, True, True, False, True]},
        POST_NORMS, peer=False,
    ),
    "exaone4-small": Family(
        "Exaone4ForCausalLM", "exaone4",
        {"rms_norm_eps": 1e-5, "sliding_window": None, "layer_types": ["full_attention"] * 3,
         "tie_word_embeddings": True},
        names=POST_NORMS,
    ),
    "stablelm": Family(
        "StableLmForCausalLM", "stablelm",
        {"layer_norm_eps": 1e-5, "use_qkv_bias": True,
         "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
        {"attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 8, "use_parallel_residual": False},
    ),
    # llama.cpp leaves this family's window out.
    "phi3": Family(
        "Phi3ForCausalLM", "phi3", {"sliding_window": _WINDOW, "rms_norm_eps": 1e-5},
        {"attention.sliding_window": _WINDOW, "rope.dimension_count": 16,
         "rope.scaling.original_context_length": 1024},
        peer=False,
    ),
    # 72 ids are over the 48 that it was trained for, in transformers and by the context in ours.
    "phi3-long": Family(
        "Phi3ForCausalLM", "phi3",
        {"hidden_size": 128, "original_max_position_embeddings": 48, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
         "rope_parameters": _longrope(24, 48, partial_rotary_factor=0.75)},
        {"attention.sliding_window": 0, "rope.dimension_count": 24, "rope.scaling.original_context_length": 48,
         "rope.scaling.attn_factor": _attn_factor(1024, 48)},
        extra=_long_factors,
    ),
    "phi3-short": Family(
        "Phi3ForCausalLM", "phi3",
        {"original_max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_parameters": _longrope(16, 512)},
        {"attention.sliding_window": 0, "rope.dimension_count": 16, "rope.scaling.original_context_length": 512,
         "rope.scaling.attn_factor": _attn_factor(1024, 512)},
        extra=_long_factors,
    ),
    "olmo2": Family(
        "Olmo2ForCausalLM", "olmo2",
        {"rms_norm_eps": 1e-6, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
        names=POST_NORMS,
    ),
    "olmo3": Family(
        "Olmo3ForCausalLM", "olmo2",
        {"rms_norm_eps": 1e-6, "num_hidden_layers": 5, "sliding_window": _WINDOW, "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
                "original_max_position_embeddings": 64, "attention_factor": 1.2079441541679836},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}},
        {"attention.sliding_window": _WINDOW, "attention.sliding_window_pattern": [True, True, True, False, True],
         "rope.scaling.yarn_attn_factor": 1.2079441541679836},
        names=POST_NORMS,
    ),
    "granite": Family(
        "GraniteForCausalLM", "granite",
        {"rms_norm_eps": 1e-5, "embedding_multiplier": 3.0, "attention_multiplier": 0.1, "residual_multiplier": 0.4,
         "logits_scaling": 2.0, "tie_word_embeddings": True},
        {"embedding_scale": 3.0, "attention.scale": 0.1, "residual_scale": 0.4, "logit_scale": 2.0,
         "rope.dimension_count": 16, "vocab_size": 272},
        permuted=True,
    ),
    "bitnet": Family(
        "BitNetForCausalLM", "bitnet", {"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True},
        {"rope.scaling.type": "linear", "rope.scaling.factor": 1.0}, ternary=True,
    ),
    # Microsoft's 2B-4T; llama.cpp does not know the name.
    "bitnet-b1.58": Family(
        "BitNetForCausalLM", "bitnet-b1.58", {"rms_norm_eps": 1e-5, "tie_word_embeddings": True},
        {"rope.scaling.type": "linear", "rope.scaling.factor": 1.0, "vocab_size": 272, "rope.dimension_count": 16},
        ternary=True, peer=False,
    ),
    "starcoder2": Family(
        "Starcoder2ForCausalLM", "starcoder2",
        {"norm_epsilon": 1e-5, "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0}},
    ),
}  # fmt: skip
