"""The tensors that a file of each architecture must have, with their dimensions. Not here: reading or claiming them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.models.shape import DecoderShape

MIXTURES = frozenset({"qwen3moe"})  # experts in every layer
HEAD_NORMS = frozenset({"qwen3moe"})  # queries and keys are normalised head by head


def expected_tensors(shape: "DecoderShape") -> dict[str, tuple[int, ...]]:
    """Names and dims (contiguous dimension first) of all tensors that such a model must have."""
    n_embd, n_q, n_kv = shape.n_embd, shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
    wanted: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (n_embd, shape.n_vocab),
        "output_norm.weight": (n_embd,),
    }
    if not shape.tied:
        wanted["output.weight"] = (n_embd, shape.n_vocab)
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (n_embd,),
        "attn_q": (n_embd, n_q),
        "attn_k": (n_embd, n_kv),
        "attn_v": (n_embd, n_kv),
        "attn_output": (n_q, n_embd),
        "ffn_norm": (n_embd,),
    }
    if shape.architecture in HEAD_NORMS:
        layer |= {"attn_q_norm": (shape.head_dim,), "attn_k_norm": (shape.head_dim,)}
    if shape.architecture in MIXTURES:
        n, n_ff = shape.n_experts, shape.n_ff_exp
        layer |= {
            "ffn_gate_inp": (n_embd, n),
            "ffn_gate_exps": (n_embd, n_ff, n),
            "ffn_up_exps": (n_embd, n_ff, n),
            "ffn_down_exps": (n_ff, n_embd, n),
        }
    else:
        layer |= {
            "ffn_gate": (n_embd, shape.n_ff),
            "ffn_up": (n_embd, shape.n_ff),
            "ffn_down": (shape.n_ff, n_embd),
        }
    wanted |= {f"blk.{i}.{name}.weight": dims for i in range(shape.n_layers) for name, dims in layer.items()}
    return wanted
