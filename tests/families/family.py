"""One row of the table of families: a model of transformers and how its GGUF file is named. Not here: the rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from engine.gguf.reader import Value
from tests.tiny import tokenizer_keys

F32 = NDArray[np.float32]
Weights = dict[str, F32]

N_VOCAB = 272
# What every row's configuration says unless it says otherwise; names as in transformers' configurations.
COMMON: dict[str, Any] = {
    "vocab_size": N_VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """`model` is a class of transformers that is built with `config`; `arch` the file's general.architecture.

    keys: metadata under the architecture's prefix beside those that `keys_of` takes from the configuration (None: the
    key is not written). names: parts of a layer whose name in the file is not the one of convert.NAMES.
    permuted: query and key rows are stored for rotation of neighbouring pairs. from_zero: norm weights are kept as
    distance from 1. interleaved: gate and up rows of experts alternate, experts are stored transposed.
    ternary: the matrices of layers hold -s, 0 and s. spreads: the end of a tensor's name -> how many times wider.
    extra: tensors that are in the file and not in the checkpoint. whole_kv_b: as files before the two halves were
    told apart. peer: llama.cpp computes the same; peer_keys: keys that only it needs.
    """

    model: str
    arch: str
    config: Mapping[str, Any]
    keys: Mapping[str, Value | None] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    permuted: bool = False
    from_zero: bool = False
    interleaved: bool = False
    ternary: bool = False
    whole_kv_b: bool = False
    spreads: Mapping[str, float] = field(default_factory=dict)
    extra: Callable[[Mapping[str, Any], "Draw"], Weights] | None = None
    peer: bool = True
    peer_keys: Mapping[str, Value | None] = field(default_factory=dict)

    @property
    def whole_config(self) -> dict[str, Any]:
        """The arguments of transformers' configuration class."""
        return COMMON | dict(self.config)


class Draw:
    """Random tensors that depend on a seed, their name and their shape alone, float32."""

    def __init__(self, family: Family, seed: int = 0) -> None:
        self.family, self.seed = family, seed

    def __call__(self, name: str, shape: tuple[int, ...]) -> F32:
        """Vectors: norm weights lie around their neutral value, others around 0. Matrices: see tests.tiny."""
        rng = np.random.default_rng([self.seed, crc32(name.encode())])
        noise = rng.standard_normal(shape, np.float32)
        if name.endswith("norm.weight"):
            return np.asarray(noise * 0.1 + (not self.family.from_zero), np.float32)
        if len(shape) == 1 or name.endswith("bias"):
            return np.asarray(noise * self._spread(name, 0.3), np.float32)
        wide = ("embed_tokens.weight", "lm_head.weight", "gate.weight", "router.weight")
        values = noise * np.float32(self._spread(name, 3.0 if name.endswith(wide) else 1.0) / np.sqrt(shape[-1]))
        if self.family.ternary and ".layers." in name:
            # As BitNet b1.58 (arXiv 2402.17764) rounds: to -1, 0, 1 times the mean magnitude.
            scale = np.abs(values).mean()
            values = np.clip(np.round(values / scale), -1, 1) * scale
        return np.asarray(values, np.float32)

    def _spread(self, name: str, usual: float) -> float:
        return next((usual * factor for end, factor in self.family.spreads.items() if name.endswith(end)), usual)


def keys_of(family: Family, name: str = "tiny") -> dict[str, Value]:
    """The file's metadata, with the keys that public files of that family have."""
    c, arch = family.whole_config, family.arch
    rope = c["rope_parameters"].get("full_attention", c["rope_parameters"])
    keys: dict[str, Value | None] = {
        "block_count": c["num_hidden_layers"], "context_length": c["max_position_embeddings"],
        "embedding_length": c["hidden_size"], "feed_forward_length": c["intermediate_size"],
        "attention.head_count": c["num_attention_heads"], "attention.head_count_kv": c["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": c.get("rms_norm_eps"),
        "attention.layer_norm_epsilon": c.get("norm_epsilon"),
        "attention.key_length": c.get("head_dim"), "attention.value_length": c.get("head_dim"),
        "rope.freq_base": rope.get("rope_theta"),
        "expert_count": _first(c, "num_local_experts", "num_experts", "n_routed_experts"),
        "expert_used_count": c.get("num_experts_per_tok"),
        "expert_group_count": c.get("n_group"), "expert_group_used_count": c.get("topk_group"),
    }  # fmt: skip
    keys |= _rope_scaling(rope) | dict(family.keys)
    named: dict[str, Value | None] = {
        "general.architecture": arch, "general.name": name, "general.file_type": 0,
    }  # fmt: skip
    named |= {f"{arch}.{key}": value for key, value in keys.items()} | tokenizer_keys(c["vocab_size"])
    return {key: value for key, value in named.items() if value is not None}


def _first(config: Mapping[str, Any], *names: str) -> Any:
    return next((config[name] for name in names if name in config), None)


def _rope_scaling(rope: Mapping[str, Any]) -> dict[str, Value | None]:
    kind = rope.get("rope_type")
    if kind not in ("linear", "yarn"):
        return {}
    keys: dict[str, Value | None] = {"rope.scaling.type": kind, "rope.scaling.factor": rope["factor"]}
    if kind == "yarn":
        keys |= {
            "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
            "rope.scaling.yarn_beta_fast": rope.get("beta_fast"), "rope.scaling.yarn_beta_slow": rope.get("beta_slow"),
        }  # fmt: skip
    return keys
