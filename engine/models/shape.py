"""The numbers of a decoder, read strictly from metadata and checked against the tensors. Not here: any computing.

A key that changes the maths and that no program here obeys is refused by name: a wrong answer is worse than none.
Source: the keys of GGUF files as llama.cpp writes and reads them, defaults included.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from engine.errors import BadModelFile, UnsupportedModel
from engine.gguf.layout import quoted
from engine.gguf.reader import GgufFile
from engine.models.keys import MAX_CTX, MAX_EXPERTS, MAX_HEADS, MAX_WIDTH, Keys
from engine.models.latent import LatentSizes
from engine.models.listing import Listing
from engine.models.registry import architecture, family
from engine.models.routing import USUAL, Routing, read_routing

ROPE_FREQS = "rope_freqs.weight"
# Facts about a file that no forward pass uses.
_HARMLESS = ("tensor_data_layout", "rope.scaling.finetuned", "expert_used_count", "pooling_type")


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How positions are stretched. type: none, linear, yarn, llama3 (divisors in the tensor rope_freqs.weight) or
    longrope (divisors in rope_factors_long.weight and rope_factors_short.weight, for contexts over n_ctx_orig or not).

    `factor` 4 makes position 400 turn like 100; `n_ctx_orig` is the length trained before stretching (yarn, longrope).
    Yarn's ramp begins and ends at whole pairs if it `is_rounded`.
    """

    type: str = "none"
    factor: float = 1.0
    n_ctx_orig: int = 0
    ext_factor: float = 0.0
    attn_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    is_rounded: bool = True


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Sizes of one model; counts in items. `tied`: the output matrix is the token embedding.

    A row uses `n_used` of `n_experts` experts of n_ff_exp hidden rows in each layer but the first `n_dense`; all four
    are 0 without experts, n_ff is 0 without a layer that has no experts. n_ff_shared: hidden rows of what all rows go
    through beside their experts. `head_dim` is the width of a query or key, `v_dim` that of a value. `windows`: for
    each layer how many positions a row sees, 0 for all of them; empty where all layers see all. `latent`: all heads
    share compressed rows, and head_dim, v_dim and n_kv_heads say what is cached. `n_skipped`: layers behind the last
    one that the file has and nobody computes. `is_encoder`: rows see all of their text, and there are no logits;
    `n_places`: how many positions have a row that is added, 0: none has. For the plan's buffers: `joins_apart`: what a
    block gives lies apart before it joins x (a norm behind, a scale); how many rope tables.
    """

    architecture: str
    n_layers: int
    n_embd: int
    n_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    v_dim: int
    rope_dim: int
    rope_base: float
    rope_scaling: RopeScaling
    eps: float
    n_ctx_train: int
    n_vocab: int
    tied: bool
    n_experts: int = 0
    n_used: int = 0
    n_ff_exp: int = 0
    n_ff_shared: int = 0
    n_dense: int = 0
    routing: Routing = USUAL
    windows: tuple[int, ...] = ()
    joins_apart: bool = False
    n_rotations: int = 1
    latent: LatentSizes | None = None
    n_skipped: int = 0
    is_encoder: bool = False
    n_places: int = 0

    def window(self, i: int) -> int:
        """How many positions a row of layer i sees, 0: all."""
        return self.windows[i] if self.windows else 0

    @classmethod
    def of(cls, keys: Keys, **own: Any) -> Self:
        """The numbers that most families name alike; `own` ones win, and their keys are not asked for."""
        found = dict(own)

        def take(name: str, read: Callable[[], Any]) -> Any:
            if name not in found:
                found[name] = read()
            return found[name]

        arch = take("architecture", lambda: keys.architecture)
        take("n_layers", lambda: keys.n_blocks)
        n_embd = take("n_embd", lambda: keys.count("embedding_length", 1, MAX_WIDTH))
        n_heads = take("n_heads", lambda: keys.counts("attention.head_count", 1, MAX_HEADS))
        n_kv_heads = take("n_kv_heads", lambda: keys.counts("attention.head_count_kv", 1, MAX_HEADS, n_heads))
        if n_heads % n_kv_heads:
            raise BadModelFile(f"{arch}.attention.head_count_kv is {n_kv_heads}, which does not divide {n_heads} heads")
        head_dim = take("head_dim", lambda: _head_dim(keys, n_embd, n_heads))
        take("v_dim", lambda: head_dim)
        n_ctx_train = take("n_ctx_train", lambda: keys.count("context_length", 1, MAX_CTX))
        take("n_ff", lambda: keys.counts("feed_forward_length", 1, MAX_WIDTH))
        take("rope_dim", lambda: _rope_dim(keys, head_dim))
        take("rope_base", lambda: keys.real("rope.freq_base", 0.0, 1e12, 10000.0))
        take("rope_scaling", lambda: rope_scaling(keys, n_ctx_train))
        take("eps", lambda: keys.real("attention.layer_norm_rms_epsilon", 0.0, 1.0))
        take("n_vocab", lambda: _n_vocab(keys.gguf))
        take("tied", lambda: "output.weight" not in keys.gguf.tensors)
        return cls(**found)

    @staticmethod
    def read(gguf: GgufFile) -> "DecoderShape":
        """The shape of a file that is whole: every tensor of its family is there and no other one.

        BadModelFile or UnsupportedModel in one sentence that begins with the file's name.
        """
        try:
            keys = Keys(gguf, architecture(gguf))
            module = family(keys.architecture)
            shape = module.read(keys)
            _refuse_other_maths(keys, shape)
            listing = Listing(gguf, shape.n_layers)
            module.Model(shape, listing)
            listing.finish()
            _check_vocabulary(keys, shape.n_vocab)
            if shape.head_dim % 8 or shape.v_dim % 8:
                odd = shape.head_dim if shape.head_dim % 8 else shape.v_dim
                raise UnsupportedModel(f"attention heads have {odd} values; a multiple of 8 runs")
        except BadModelFile as error:
            raise type(error)(f"{quoted(gguf.path.name, 120)}: {error}") from None
        return shape


def mixture(keys: Keys, n_ff_exp: int, routing: Routing = USUAL) -> dict[str, Any]:
    """The numbers of experts of n_ff_exp hidden rows in every layer, for `DecoderShape.of`."""
    n = keys.count("expert_count", 1, MAX_EXPERTS)
    used = keys.count("expert_used_count", 1, n)
    keys.neutral("expert_weights_norm", routing.is_share)
    keys.neutral("expert_weights_scale", 1.0, 0.0)
    if not keys.was_read("expert_gating_func"):
        keys.neutral("expert_gating_func", 1, 0)
    return {"n_experts": n, "n_used": used, "n_ff_exp": n_ff_exp, "routing": routing, "n_ff": 0}


def shared_mixture(keys: Keys, gate: int) -> dict[str, Any]:
    """The numbers of models whose first layers are dense and whose others have experts beside one for all rows, and of
    whose last layers (nextn) nothing is computed; `gate` as `read_routing` wants it."""
    n = keys.count("expert_count", 1, MAX_EXPERTS)
    used = keys.count("expert_used_count", 1, n)
    n_ff_exp = keys.counts("expert_feed_forward_length", 1, MAX_WIDTH)
    n_skipped = keys.count("nextn_predict_layers", 0, keys.n_blocks - 1, 0)
    n_layers = keys.n_blocks - n_skipped
    return {
        "n_layers": n_layers, "n_skipped": n_skipped, "n_experts": n, "n_used": used, "n_ff_exp": n_ff_exp,
        "n_ff_shared": n_ff_exp * keys.count("expert_shared_count", 0, MAX_EXPERTS, 0),
        "n_dense": keys.count("leading_dense_block_count", 0, n_layers - 1, 0),
        "routing": read_routing(keys, n, used, gate),
    }  # fmt: skip


def _head_dim(keys: Keys, n_embd: int, n_heads: int) -> int:
    if not keys.has("attention.key_length") and n_embd % n_heads:
        raise BadModelFile(f"{keys.prefix}embedding_length {n_embd} is no multiple of {n_heads} heads")
    k = keys.count("attention.key_length", 2, 1024, max(2, n_embd // n_heads))
    v = keys.count("attention.value_length", 2, 1024, max(2, n_embd // n_heads))
    if k != v:
        raise UnsupportedModel(f"{keys.prefix}attention.key_length {k} and value_length {v} differ; equal ones run")
    return k


def _rope_dim(keys: Keys, head_dim: int) -> int:
    rope_dim = keys.count("rope.dimension_count", 2, head_dim, head_dim)
    if rope_dim % 2:
        raise BadModelFile(f"{keys.prefix}rope.dimension_count is {rope_dim}; an even number is expected")
    return rope_dim


def rope_scaling(keys: Keys, n_ctx_train: int) -> RopeScaling:
    """An absent type with a factor means linear, as in files older than the type key."""
    key = "rope.scaling.factor" if keys.has("rope.scaling.factor") else "rope.scale_linear"
    keys.ignore("rope.scaling.factor", "rope.scale_linear")
    factor = keys.real(key, 0.0, 1e4, 1.0)
    kind = keys.text("rope.scaling.type", "linear" if factor != 1.0 else "none")
    n_ctx_orig = keys.count("rope.scaling.original_context_length", 1, MAX_CTX, n_ctx_train)
    ext_factor = keys.real("rope.scaling.yarn_ext_factor", -1.0, 1e3, 1.0)
    scaling = RopeScaling(
        type=kind,
        factor=factor,
        n_ctx_orig=n_ctx_orig,
        ext_factor=ext_factor,
        attn_factor=_attn_factor(keys, 1.0 + 0.1 * math.log(factor) if kind == "yarn" and ext_factor else 1.0),
        beta_fast=keys.real("rope.scaling.yarn_beta_fast", 0.0, 1e6, 32.0),
        beta_slow=keys.real("rope.scaling.yarn_beta_slow", 0.0, 1e6, 1.0),
    )
    if ROPE_FREQS in keys.gguf.tensors:
        if kind not in ("none", "linear") or factor != 1.0:
            raise UnsupportedModel(f"{keys.prefix}rope.scaling.type {quoted(kind)} beside {ROPE_FREQS} is not known")
        return RopeScaling(type="llama3", n_ctx_orig=n_ctx_orig)
    if kind == "yarn":
        if scaling.ext_factor < 0.0:
            raise BadModelFile(f"{keys.prefix}rope.scaling.yarn_ext_factor {scaling.ext_factor:g} is below 0")
        return scaling
    if kind not in ("none", "linear"):
        raise UnsupportedModel(
            f"{keys.prefix}rope.scaling.type {quoted(kind)} is not supported; supported: none, linear, yarn"
        )
    if scaling.attn_factor != 1.0:
        raise UnsupportedModel(f"{keys.prefix}rope.scaling.attn_factor {scaling.attn_factor:g} needs type yarn")
    if kind == "none" or factor == 1.0:
        return RopeScaling()
    return RopeScaling("linear", factor, n_ctx_orig)


def _attn_factor(keys: Keys, usual: float) -> float:
    """What lengthens vectors beside the `usual` factor: one key adds to that, the other one replaces it."""
    whole = keys.real("rope.scaling.yarn_attn_factor", 0.0, 1e3, usual)
    return keys.real("rope.scaling.attn_factor", 0.0, 1e3, 1.0) * (whole / usual)


def _refuse_other_maths(keys: Keys, shape: DecoderShape) -> None:
    """Keys that change the maths, where the family has not read them: it would not compute what they say."""
    keys.ignore(*_HARMLESS)
    neutral: dict[str, tuple[Any, ...]] = {
        "expert_count": (0,),
        "logit_scale": (1.0, 0.0),
        "residual_scale": (1.0, 0.0),
        "embedding_scale": (1.0, 0.0),
        "attention.causal": (True,),
        "attention.scale": (0.0, 1.0 / shape.head_dim**0.5),
        "use_parallel_residual": (False,),
        "attention.layer_norm_epsilon": (0.0, shape.eps),
    }
    for name, values in neutral.items():
        if not keys.was_read(name):
            keys.neutral(name, *values)
    if not keys.was_read("attention.sliding_window"):
        window = keys.count("attention.sliding_window", 0, 1 << 32, 0)
        if 0 < window < shape.n_ctx_train:
            raise UnsupportedModel(f"{keys.prefix}attention.sliding_window is {window}; windows are not supported")
    keys.ignore("vocab_size")
    keys.refuse_unread()


def _n_vocab(gguf: GgufFile) -> int:
    embedding = gguf.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.dims) < 2:
        raise BadModelFile("there is no matrix token_embd.weight; the file is no whole language model")
    return embedding.n_rows


def _check_vocabulary(keys: Keys, n_vocab: int) -> None:
    """What is indexed by token id must be as long as the embedding has rows."""
    gguf = keys.gguf
    said = keys.count("vocab_size", 1, 1 << 31, n_vocab)
    if said != n_vocab:
        raise BadModelFile(f"{keys.prefix}vocab_size is {said:,}; the token embedding has {n_vocab:,} rows")
    for key in ("tokens", "scores", "token_type"):
        value = gguf.metadata.get(f"tokenizer.ggml.{key}")
        if value is None:
            continue
        if not isinstance(value, list):
            raise BadModelFile(f"tokenizer.ggml.{key} is no array")
        if len(value) != n_vocab:
            raise BadModelFile(
                f"tokenizer.ggml.{key} has {len(value):,} entries; the token embedding has {n_vocab:,} rows"
            )
