"""Turns a checkpoint of transformers into the tensors of a GGUF file. Not here: which weights a checkpoint has.

Names and shapes are those of transformers' own modules (experts in one tensor a layer). Source: the names that public
GGUF files carry, and the order of rows in them.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from engine.gguf.writer import Tensor, write_gguf
from engine.quants.registry import TYPES
from tests.blocks import quantise
from tests.families.family import F32, Draw, Family, Weights, keys_of

_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
# Part of a layer in the checkpoint -> part of a block in the file.
NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "self_attn.qkv_proj": "attn_qkv", "self_attn.sinks": "attn_sinks.weight",
    "self_attn.attn_sub_norm": "attn_sub_norm", "mlp.ffn_sub_norm": "ffn_sub_norm",
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up",
    "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp", "block_sparse_moe.router": "ffn_gate_inp",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.experts.down_proj": "ffn_down_exps.weight", "block_sparse_moe.experts.down_proj": "ffn_down_exps.weight",
    "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "shared_mlp.output_linear": "ffn_down_shexp",
    **{f"mlp.{shared}.{part}_proj": f"ffn_{part}_shexp"
       for shared in ("shared_expert", "shared_experts") for part in ("gate", "up", "down")},
}  # fmt: skip
POST_NORMS = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
# Tensors of two dimensions that no quantised file quantises.
_KEPT = ("ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "_exps.bias")


def draw_checkpoint(family: Family, shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> Weights:
    """Random weights for a checkpoint of those names and shapes."""
    draw = Draw(family, seed)
    return {name: draw(name, shape) for name, shape in shapes.items()}


def write_family(
    path: Path, family: Family, weights: Weights, quant: str = "F32", *, for_peer: bool = False
) -> Path:
    """The checkpoint as a GGUF file; matrices of layers and of tokens in `quant` where their rows fill its blocks."""
    keys = keys_of(family)
    if for_peer:
        keys |= {f"{family.arch}.{key}": value for key, value in family.peer_keys.items() if value is not None}
    tensors = dict(convert(family, weights))
    return write_gguf(path, keys, [_stored(name, values, quant) for name, values in tensors.items()])


def _stored(name: str, values: F32, quant: str) -> Tensor:
    plain = values.ndim == 1 or name.endswith(_KEPT)
    kind = "F32" if plain or values.shape[-1] % TYPES[quant].items else quant
    return name, values.shape[::-1], kind, quantise(np.ascontiguousarray(values), kind)


def convert(family: Family, weights: Weights) -> Iterator[tuple[str, F32]]:
    """(name in the file, values in numpy's order of dimensions) of all tensors."""
    for name, values in weights.items():
        found = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", name)
        if family.from_zero and name.endswith("norm.weight"):
            values = values + np.float32(1)
        if found:
            for part, changed in _of_layer(family, found[2], values):
                yield f"blk.{found[1]}.{part}", changed
        else:
            stem, suffix = name.rsplit(".", 1)
            yield f"{_WHOLE[stem]}.{suffix}", values
    if family.extra:
        yield from family.extra(family.whole_config, Draw(family)).items()


def _of_layer(family: Family, name: str, values: F32) -> Iterator[tuple[str, F32]]:
    c = family.whole_config
    stem, _, suffix = name.rpartition(".")
    if name.endswith(("experts.gate_up_proj", "experts.gate_up_proj_bias")):
        ending = "bias" if name.endswith("bias") else "weight"
        gate, up = _halves(family, values, is_bias=ending == "bias")
        yield f"ffn_gate_exps.{ending}", gate
        yield f"ffn_up_exps.{ending}", up
    elif stem == "shared_mlp.input_linear":
        gate, up = np.split(values, 2)
        yield "ffn_gate_shexp.weight", gate
        yield "ffn_up_shexp.weight", up
    elif stem == "self_attn.kv_b_proj":
        yield from _kv_b(family, values)
    else:
        names = NAMES | dict(family.names)
        part = names.get(name) or f"{names[stem]}.{suffix}"
        if family.permuted and stem.endswith(("q_proj", "k_proj")):
            n_heads = c["num_attention_heads" if stem.endswith("q_proj") else "num_key_value_heads"]
            values = _neighbours(values, n_heads)
        if family.interleaved and name.endswith("experts.down_proj"):
            values = values.swapaxes(1, 2)
        yield part, values


def _neighbours(values: F32, n_heads: int) -> F32:
    """Rows of each head from the order 0, n / 2, ... of halves to that of neighbouring pairs."""
    heads = values.reshape(n_heads, 2, len(values) // n_heads // 2, *values.shape[1:])
    return heads.swapaxes(1, 2).reshape(values.shape)


def _halves(family: Family, values: F32, is_bias: bool) -> tuple[F32, F32]:
    """Gate and up of the experts: first and second half of the rows, or every other one."""
    if not family.interleaved:
        n = values.shape[1] // 2
        return values[:, :n], values[:, n:]
    if not is_bias:
        values = values.swapaxes(1, 2)
    return values[:, ::2], values[:, 1::2]


def _kv_b(family: Family, values: F32) -> Iterator[tuple[str, F32]]:
    """Latent -> keys and values of all heads: whole, or keys transposed (to be multiplied with queries) and values."""
    if family.whole_kv_b:
        yield "attn_kv_b.weight", values
        return
    c = family.whole_config
    n_keys, n_values = c["qk_nope_head_dim"], c["v_head_dim"]
    heads = values.reshape(c["num_attention_heads"], n_keys + n_values, -1)
    yield "attn_k_b.weight", heads[:, :n_keys].swapaxes(1, 2)
    yield "attn_v_b.weight", heads[:, n_keys:]
