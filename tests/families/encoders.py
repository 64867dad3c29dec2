"""Tiny encoders as transformers computes them, and as GGUF files. Not here: decoders, which have logits (family.py).

Weights are drawn from a seed (family.Draw); what is kept of transformers are the rows of its last layer.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engine.gguf.reader import Value
from engine.gguf.writer import Tensor, write_gguf
from engine.quants.registry import TYPES
from tests.blocks import quantise
from tests.families.family import F32, Draw, Family, Weights
from tests.families.stored import FOLDER, digest, ids_of

_COMMON: dict[str, Any] = {
    "vocab_size": 272, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 128, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0,
}  # fmt: skip
_WHOLE = {
    "embeddings.word_embeddings.weight": "token_embd.weight", "embeddings.position_embeddings.weight":
    "position_embd.weight", "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm.weight": "token_embd_norm.weight", "embeddings.LayerNorm.bias": "token_embd_norm.bias",
}  # fmt: skip
_LAYER = {
    "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "post_attention_layernorm": "attn_output_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "post_mlp_layernorm": "layer_output_norm",
}  # fmt: skip


@dataclass(frozen=True)
class Encoder:
    """`model` is a class of transformers that is built with `config`; `is_fused`: q, k and v are one tensor in the
    file; `keys` under the architecture's prefix beside the usual ones."""

    model: str
    arch: str
    is_fused: bool = False
    keys: dict[str, Value] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def whole_config(self) -> dict[str, Any]:
        return _COMMON | self.config

    def draw(self, shapes: dict[str, tuple[int, ...]]) -> Weights:
        """Random weights for a checkpoint of those names and shapes: Draw's, norms as norms."""
        draw = Draw(Family(self.model, self.arch, {}))
        return {name: draw(name.replace("LayerNorm", "norm").replace("layernorm", "norm"), s)
                for name, s in shapes.items()}  # fmt: skip


_NOMIC = {"rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}, "layer_norm_eps": 1e-5}
ENCODERS = {
    "bert": Encoder("BertModel", "bert"),
    "bert-fused": Encoder("BertModel", "bert", is_fused=True),
    "nomic-bert": Encoder("NomicBertModel", "nomic-bert", True, {"rope.freq_base": 1000.0}, _NOMIC),
}


def convert(row: Encoder, weights: Weights) -> Weights:
    """The tensors of the file."""
    out: Weights = {}
    for name, values in weights.items():
        found = re.fullmatch(r"(?:encoder\.)?layers?\.(\d+)\.(.+)\.(weight|bias)", name)
        out[f"blk.{found[1]}.{_LAYER[found[2]]}.{found[3]}" if found else _WHOLE[name]] = values
    for i in range(row.whole_config["num_hidden_layers"] if row.is_fused else 0):
        for what in ("weight", "bias"):
            parts = [out.pop(f"blk.{i}.attn_{part}.{what}", None) for part in "qkv"]
            if parts[0] is not None:
                out[f"blk.{i}.attn_qkv.{what}"] = np.concatenate([part for part in parts if part is not None])
    return out


def write(
    name: str, path: Path, pooling: int | None = 1, quant: str = "F32", *,
    changed: Mapping[str, object] | None = None, without: str = "", more: Weights | None = None,
) -> F32:  # fmt: skip
    """Write the row's model to `path`; transformers' rows of `ids_of()`, float32 (72, 64). For files that are wrong:
    `changed` keys (None: left out), `without` a tensor; `more` tensors, of a head for example."""
    row, c = ENCODERS[name], ENCODERS[name].whole_config
    with np.load(FOLDER / f"{name.removesuffix('-fused')}.npz") as kept:
        about, rows = json.loads(kept["about"].tobytes()), kept["rows"].astype(np.float32)
    weights = row.draw({tensor: tuple(shape) for tensor, shape in about["shapes"].items()})
    assert digest(weights) == about["sha256"], f"{name}: numpy draws other weights than when transformers was asked"
    keys: dict[str, Value] = {
        "block_count": c["num_hidden_layers"], "context_length": c["max_position_embeddings"],
        "embedding_length": c["hidden_size"], "feed_forward_length": c["intermediate_size"],
        "attention.head_count": c["num_attention_heads"], "attention.layer_norm_epsilon": c["layer_norm_eps"],
        "attention.causal": False, **row.keys, **({} if pooling is None else {"pooling_type": pooling}),
    }  # fmt: skip
    named: dict[str, Value] = {"general.architecture": row.arch, "general.name": name, "general.file_type": 0}
    named |= {f"{row.arch}.{key}": value for key, value in keys.items()} | wordpiece_keys(c["vocab_size"])
    named |= changed or {}  # type: ignore[arg-type]
    kept = {key: value for key, value in named.items() if value is not None}
    tensors = (convert(row, weights) | (more or {})).items()
    write_gguf(path, kept, [_stored(tensor, v, quant) for tensor, v in tensors if tensor != without])
    return rows


def _stored(name: str, values: F32, quant: str) -> Tensor:
    plain = values.ndim == 1 or name.startswith(("position_embd", "token_types"))
    kind = "F32" if plain or values.shape[-1] % TYPES[quant].items else quant
    return name, values.shape[::-1], kind, quantise(np.ascontiguousarray(values), kind)


def wordpiece_keys(n_vocab: int) -> dict[str, Value]:
    """A vocabulary of letters, their continuations and numbered words, as BERT's files have it."""
    letters = [chr(c) for c in range(33, 127) if not chr(c).isupper()]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *("\u2581" + c for c in letters), *letters]
    tokens += [f"\u2581word{i}" for i in range(n_vocab - len(tokens))]
    return {
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.pre": "default", "tokenizer.ggml.tokens": tokens[:n_vocab],
        "tokenizer.ggml.token_type": [3, 2, 3, 3, 3, *([1] * (n_vocab - 5))],
        "tokenizer.ggml.token_type_count": 2, "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.bos_token_id": 2, "tokenizer.ggml.cls_token_id": 2, "tokenizer.ggml.eos_token_id": 3,
        "tokenizer.ggml.seperator_token_id": 3, "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.mask_token_id": 4,
    }  # fmt: skip


def ask(name: str) -> None:
    """Ask transformers (torch and transformers are needed) and keep what it says under tests/vectors/families."""
    import torch
    import transformers

    row, name = ENCODERS[name], name.removesuffix("-fused")
    kind = getattr(transformers, row.model)
    config = kind.config_class(**row.whole_config, attn_implementation="eager")
    model = kind(config, add_pooling_layer=False).eval()
    weights = row.draw({n: tuple(t.shape) for n, t in model.state_dict().items() if "_ids" not in n})
    model.load_state_dict({n: torch.from_numpy(w) for n, w in weights.items()}, strict=False)
    with torch.no_grad():
        rows = model.double()(torch.tensor([ids_of()])).last_hidden_state[0].numpy().astype(np.float32)
    about = {
        "shapes": {n: list(w.shape) for n, w in weights.items()}, "sha256": digest(weights),
        "by": "python -m benchmarks.transformers_families", "transformers": transformers.__version__,
    }  # fmt: skip
    np.savez_compressed(FOLDER / f"{name}.npz", rows=rows, about=np.frombuffer(json.dumps(about).encode(), np.uint8))
