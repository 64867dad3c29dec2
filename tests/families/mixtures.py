"""The rows of families with experts. Not here: what a row means (family.py)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.families.family import Draw, Family, Weights

_FFN_NORM_LATER = {"post_attention_layernorm": "post_attention_norm"}
_QWEN3: dict[str, Any] = {
    "rms_norm_eps": 1e-6, "head_dim": 32, "norm_topk_prob": True, "num_experts": 40, "num_experts_per_tok": 8,
    "moe_intermediate_size": 32, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}  # fmt: skip
_GRANITE: dict[str, Any] = {
    "rms_norm_eps": 1e-6, "embedding_multiplier": 3.0, "attention_multiplier": 0.1, "residual_multiplier": 0.4,
    "logits_scaling": 2.0, "tie_word_embeddings": True, "num_local_experts": 10, "num_experts_per_tok": 3,
}  # fmt: skip
_GRANITE_KEYS = {
    "embedding_scale": 3.0, "attention.scale": 0.1, "residual_scale": 0.4, "logit_scale": 2.0,
    "rope.dimension_count": 16, "vocab_size": 272,
}  # fmt: skip
_LATENT: dict[str, Any] = {
    "rms_norm_eps": 1e-6, "num_key_value_heads": 4, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
    "v_head_dim": 32, "first_k_dense_replace": 1, "moe_intermediate_size": 32, "num_experts_per_tok": 4,
}  # fmt: skip
# One head of keys and values for all queries: the latent, with 16 rotated values behind it in the keys.
_LATENT_KEYS = {
    "attention.head_count_kv": 1, "attention.kv_lora_rank": 64, "attention.key_length": 80,
    "attention.value_length": 64, "attention.key_length_mla": 48, "attention.value_length_mla": 32,
    "rope.dimension_count": 16, "leading_dense_block_count": 1, "expert_feed_forward_length": 32, "vocab_size": 272,
}  # fmt: skip
_NO_LATENT_KEYS = {
    **_LATENT_KEYS, "attention.head_count_kv": 4, "attention.key_length": 48, "attention.value_length": 32,
    "attention.key_length_mla": None, "attention.value_length_mla": None,
}  # fmt: skip

_GPT_OSS: dict[str, Any] = {
    "rms_norm_eps": 1e-5, "head_dim": 16, "num_hidden_layers": 4, "sliding_window": 24, "intermediate_size": 64,
    "num_local_experts": 8, "num_experts_per_tok": 3,
}  # fmt: skip
_GPT_OSS_KEYS = {"attention.sliding_window": 24, "expert_feed_forward_length": 64}
# Wide enough that gates and ups are clamped.
_GPT_OSS_SPREADS = {"sinks": 3.0, "gate_up_proj": 4.0, "gate_up_proj_bias": 4.0}

_GLM: dict[str, Any] = {
    "rms_norm_eps": 1e-5, "head_dim": 32, "attention_bias": True, "n_routed_experts": 8, "n_shared_experts": 1,
    "num_experts_per_tok": 3, "moe_intermediate_size": 32, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5,
    "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0, "partial_rotary_factor": 0.5},
}  # fmt: skip
_GLM_KEYS = {
    "rope.dimension_count": 16, "expert_feed_forward_length": 32, "expert_shared_count": 1,
    "leading_dense_block_count": 1, "expert_gating_func": 2, "expert_weights_scale": 1.5, "expert_weights_norm": True,
}  # fmt: skip


def _yarn(factor: float, trained: int, mscale: float | None = None, **more: Any) -> dict[str, Any]:
    scales = {"mscale": mscale, "mscale_all_dim": mscale} if mscale else {}
    return {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": factor, "original_max_position_embeddings": trained,
        "beta_fast": 32.0, "beta_slow": 1.0, **scales, **more,
    }  # fmt: skip


def _predictor(config: Mapping[str, Any], draw: Draw) -> Weights:
    """One more block that guesses the token after the next; nobody computes it."""
    n, n_q, n_kv = config["hidden_size"], 32 * config["num_attention_heads"], 32 * config["num_key_value_heads"]
    experts, n_ff = config["n_routed_experts"], config["moe_intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (n,), "attn_q.weight": (n_q, n), "attn_q.bias": (n_q,), "attn_k.weight": (n_kv, n),
        "attn_k.bias": (n_kv,), "attn_v.weight": (n_kv, n), "attn_v.bias": (n_kv,), "attn_output.weight": (n, n_q),
        "attn_q_norm.weight": (32,), "attn_k_norm.weight": (32,), "post_attention_norm.weight": (n,),
        "ffn_gate_inp.weight": (experts, n), "exp_probs_b.bias": (experts,),
        "ffn_gate_exps.weight": (experts, n_ff, n), "ffn_up_exps.weight": (experts, n_ff, n),
        "ffn_down_exps.weight": (experts, n, n_ff), "ffn_gate_shexp.weight": (n_ff, n),
        "ffn_up_shexp.weight": (n_ff, n), "ffn_down_shexp.weight": (n, n_ff), "nextn.eh_proj.weight": (n, 2 * n),
        "nextn.enorm.weight": (n,), "nextn.hnorm.weight": (n,), "nextn.embed_tokens.weight": (config["vocab_size"], n),
        "nextn.shared_head_head.weight": (config["vocab_size"], n), "nextn.shared_head_norm.weight": (n,),
    }  # fmt: skip
    block = f"blk.{config['num_hidden_layers']}"
    return {f"{block}.{name}": draw(f"{block}.{name}", shape) for name, shape in shapes.items()}


MIXTURES: dict[str, Family] = {
    "mixtral": Family(
        "MixtralForCausalLM", "llama", {"rms_norm_eps": 1e-5, "num_local_experts": 8, "num_experts_per_tok": 2},
        {"rope.dimension_count": 16, "vocab_size": 272}, permuted=True,
    ),
    "qwen2moe": Family(
        "Qwen2MoeForCausalLM", "qwen2moe",
        {"rms_norm_eps": 1e-6, "num_experts": 10, "num_experts_per_tok": 4, "moe_intermediate_size": 32,
         "shared_expert_intermediate_size": 64},
        {"expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 64},
    ),
    "qwen3moe": Family("Qwen3MoeForCausalLM", "qwen3moe", _QWEN3, {"expert_feed_forward_length": 32}),
    "qwen3moe-all": Family(
        "Qwen3MoeForCausalLM", "qwen3moe",
        {**_QWEN3, "num_experts": 4, "num_experts_per_tok": 4, "tie_word_embeddings": True, "num_key_value_heads": 1},
        {"expert_feed_forward_length": 32},
    ),
    "qwen3moe-one": Family(
        "Qwen3MoeForCausalLM", "qwen3moe", {**_QWEN3, "num_experts": 6, "num_experts_per_tok": 1},
        {"expert_feed_forward_length": 32},
    ),
    "olmoe": Family(
        "OlmoeForCausalLM", "olmoe",
        {"rms_norm_eps": 1e-5, "num_key_value_heads": 4, "num_experts": 10, "num_experts_per_tok": 3,
         "intermediate_size": 32},
    ),
    "granitemoe": Family(
        "GraniteMoeForCausalLM", "granitemoe", {**_GRANITE, "intermediate_size": 32}, _GRANITE_KEYS, permuted=True,
    ),
    "granitemoe-shared": Family(
        "GraniteMoeSharedForCausalLM", "granitemoe",
        {**_GRANITE, "intermediate_size": 32, "shared_intermediate_size": 64},
        {**_GRANITE_KEYS, "expert_shared_feed_forward_length": 64}, permuted=True,
    ),
    # llama.cpp knows by the number of layers alone that there is no low rank of queries.
    "deepseek2-lite": Family(
        "DeepseekV2ForCausalLM", "deepseek2",
        {**_LATENT, "n_routed_experts": 10, "n_shared_experts": 2, "rope_parameters": _yarn(4.0, 32, 0.707),
         "q_lora_rank": None, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0},
        {**_LATENT_KEYS, "expert_shared_count": 2, "expert_weights_scale": 1.0, "expert_gating_func": 1,
         "rope.scaling.yarn_log_multiplier": 0.0707},
        peer_keys={"attention.q_lora_rank": 0},
    ),
    # A group is as good as its best expert; in llama.cpp as its best two.
    "deepseek2-v2": Family(
        "DeepseekV2ForCausalLM", "deepseek2",
        {**_LATENT, "q_lora_rank": 96, "n_routed_experts": 16, "n_shared_experts": 2, "n_group": 4, "topk_group": 2,
         "topk_method": "group_limited_greedy", "routed_scaling_factor": 16.0,
         "rope_parameters": _yarn(4.0, 32, 0.707)},
        {**_LATENT_KEYS, "attention.q_lora_rank": 96, "expert_shared_count": 2, "expert_weights_scale": 16.0,
         "rope.scaling.yarn_log_multiplier": 0.0707},
        peer=False,
    ),
    "deepseek2-v3": Family(
        "DeepseekV3ForCausalLM", "deepseek2",
        {**_LATENT, "q_lora_rank": 96, "n_routed_experts": 16, "n_shared_experts": 1, "n_group": 4, "topk_group": 2,
         "routed_scaling_factor": 2.5, "norm_topk_prob": True, "rope_parameters": _yarn(8.0, 32, 1.0)},
        {**_LATENT_KEYS, "attention.q_lora_rank": 96, "expert_shared_count": 1, "expert_weights_scale": 2.5,
         "expert_weights_norm": True, "expert_gating_func": 2, "rope.scaling.yarn_log_multiplier": 0.1},
    ),
    # transformers' ramp of yarn lies between broken numbers of pairs here, llama.cpp's between whole ones.
    "gpt-oss": Family(
        "GptOssForCausalLM", "gpt-oss",
        {**_GPT_OSS, "rope_parameters": _yarn(8.0, 64, truncate=False) | {"rope_theta": 150000.0}},
        _GPT_OSS_KEYS, _FFN_NORM_LATER, interleaved=True, spreads=_GPT_OSS_SPREADS, peer=False,
    ),
    "gpt-oss-plain": Family(
        "GptOssForCausalLM", "gpt-oss",
        {**_GPT_OSS, "rope_parameters": {"rope_type": "default", "rope_theta": 150000.0}},
        _GPT_OSS_KEYS, _FFN_NORM_LATER, interleaved=True, spreads=_GPT_OSS_SPREADS,
    ),
    "glm4moe": Family(
        "Glm4MoeForCausalLM", "glm4moe", {**_GLM, "use_qk_norm": True},
        {**_GLM_KEYS, "block_count": 4, "nextn_predict_layers": 1}, _FFN_NORM_LATER, extra=_predictor,
    ),
    "glm4moe-air": Family(
        "Glm4MoeForCausalLM", "glm4moe", {**_GLM, "use_qk_norm": False}, _GLM_KEYS, _FFN_NORM_LATER,
    ),
}  # fmt: skip
# Files from before llama.cpp multiplied queries into the latent: keys and values of all heads from one matrix.
MIXTURES["deepseek2-kv_b"] = replace(MIXTURES["deepseek2-v3"], whole_kv_b=True, keys={
    **MIXTURES["deepseek2-v3"].keys, **{key: _NO_LATENT_KEYS[key] for key in _LATENT_KEYS},
})  # fmt: skip
