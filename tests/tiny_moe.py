"""Tiny but real GGUF models with experts, beside those of tests/tiny.py. Not here: what they compute."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engine.gguf.reader import Value
from engine.gguf.writer import write_gguf
from engine.quants.registry import TYPES
from tests.tiny import random_tensor, tokenizer_keys

# More than a register's width of experts, and no multiple of it.
N_EXPERTS = 13
ROUTERS = {"ffn_gate_inp.weight": "F32"}


def tiny_qwen3moe(
    path: str | Path,
    *,
    quant: str = "Q4_0",
    n_layers: int = 2,
    n_embd: int | None = None,
    n_heads: int = 4,
    n_kv_heads: int = 2,
    head_dim: int | None = None,
    n_experts: int = N_EXPERTS,
    n_used: int = 4,
    n_ff_exp: int | None = None,
    n_vocab: int = 320,
    seed: int = 0,
    tied: bool = False,
    n_ctx: int = 1024,
    quants: Mapping[str, str] | None = None,
    **metadata: Value | None,
) -> Path:
    """Write a qwen3moe model whose matrices are of type `quant` (norms and routers F32) and return its path.

    Options as of tests.tiny.tiny_llama. Same arguments, same bytes.
    """
    wide = TYPES[quant].items == 256
    head_dim = head_dim or (64 if wide else 32)
    n_embd, n_ff = n_embd or (256 if wide else 128), n_ff_exp or (256 if wide else 96)
    keys: dict[str, Value | None] = {
        "general.architecture": "qwen3moe",
        "general.name": "tiny experts",
        "qwen3moe.context_length": n_ctx,
        "qwen3moe.embedding_length": n_embd,
        "qwen3moe.block_count": n_layers,
        "qwen3moe.feed_forward_length": n_ff * n_used,
        "qwen3moe.expert_feed_forward_length": n_ff,
        "qwen3moe.expert_count": n_experts,
        "qwen3moe.expert_used_count": n_used,
        "qwen3moe.attention.head_count": n_heads,
        "qwen3moe.attention.head_count_kv": n_kv_heads,
        "qwen3moe.attention.key_length": head_dim,
        "qwen3moe.attention.value_length": head_dim,
        "qwen3moe.attention.layer_norm_rms_epsilon": 1e-6,
        "qwen3moe.rope.freq_base": 1000000.0,
    }
    keys |= tokenizer_keys(n_vocab) | metadata
    shapes = qwen3moe_shapes(n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_experts, n_ff, n_vocab, tied)
    rng = np.random.default_rng(seed)
    tensors = [random_tensor(rng, name, dims, quant, ROUTERS | dict(quants or {})) for name, dims in shapes.items()]
    return write_gguf(path, {key: value for key, value in keys.items() if value is not None}, tensors)


def mixed_experts(path: str | Path) -> Path:
    """Experts of many types: gate and up that multiply with other activations, and one layer's down as well."""
    quants = {
        "ffn_gate_exps.weight": "Q4_K", "0.ffn_up_exps.weight": "Q6_K", "1.ffn_up_exps.weight": "F16",
        "0.ffn_down_exps.weight": "Q6_K", "1.ffn_down_exps.weight": "BF16", "attn_v.weight": "Q8_0",
    }  # fmt: skip
    return tiny_qwen3moe(path, quant="Q4_K", quants=quants, n_experts=21, n_used=5)


def many_experts(path: str | Path) -> Path:
    """A row uses eight of forty; the output is the token embedding."""
    return tiny_qwen3moe(path, quant="Q6_K", n_experts=40, n_used=8, tied=True)


def qwen3moe_shapes(
    n_layers: int, n_embd: int, n_heads: int, n_kv_heads: int, head_dim: int, n_experts: int, n_ff: int, n_vocab: int,
    tied: bool = False,
) -> dict[str, tuple[int, ...]]:  # fmt: skip
    """Tensor names and dims (contiguous dimension first) of a qwen3moe model."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (n_embd, n_vocab), "output_norm.weight": (n_embd,)}
    if not tied:
        shapes["output.weight"] = (n_embd, n_vocab)
    n_q, n_kv = n_heads * head_dim, n_kv_heads * head_dim
    for i in range(n_layers):
        shapes |= {
            f"blk.{i}.attn_norm.weight": (n_embd,),
            f"blk.{i}.attn_q.weight": (n_embd, n_q),
            f"blk.{i}.attn_k.weight": (n_embd, n_kv),
            f"blk.{i}.attn_v.weight": (n_embd, n_kv),
            f"blk.{i}.attn_output.weight": (n_q, n_embd),
            f"blk.{i}.attn_q_norm.weight": (head_dim,),
            f"blk.{i}.attn_k_norm.weight": (head_dim,),
            f"blk.{i}.ffn_norm.weight": (n_embd,),
            f"blk.{i}.ffn_gate_inp.weight": (n_embd, n_experts),
            f"blk.{i}.ffn_gate_exps.weight": (n_embd, n_ff, n_experts),
            f"blk.{i}.ffn_up_exps.weight": (n_embd, n_ff, n_experts),
            f"blk.{i}.ffn_down_exps.weight": (n_ff, n_embd, n_experts),
        }
    return shapes
