"""The numbers of a decoder, read strictly from metadata and checked against the tensors. Not here: any computing.

A key that changes the maths and that no program here obeys is refused by name: a wrong answer is worse than none.
Source: the keys of GGUF files as llama.cpp writes and reads them, defaults included.
"""

from dataclasses import dataclass

from engine.errors import BadModelFile, UnsupportedModel
from engine.gguf.layout import quoted
from engine.gguf.reader import GgufFile
from engine.models.keys import Keys
from engine.models.registry import architecture
from engine.models.tensors import MIXTURES, expected_tensors

MAX_LAYERS = 1024
MAX_WIDTH = 1 << 20
MAX_HEADS = 4096
MAX_EXPERTS = 4096
MAX_CTX = 1 << 30
ROPE_FREQS = "rope_freqs.weight"
# Facts about a file that no forward pass uses.
_HARMLESS = ("vocab_size", "tensor_data_layout", "rope.scaling.finetuned", "expert_used_count", "pooling_type")


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How positions are stretched. type: none, linear, yarn, or llama3 (divisors in the tensor rope_freqs.weight).

    `factor` 4 makes position 400 turn like 100; `n_ctx_orig` is the length trained before stretching (yarn).
    """

    type: str = "none"
    factor: float = 1.0
    n_ctx_orig: int = 0
    ext_factor: float = 0.0
    attn_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Sizes of one decoder-only model; counts in items. `tied`: the output matrix is the token embedding.

    A row uses `n_used` of `n_experts` experts of n_ff_exp hidden rows in each layer; all three are 0 without experts.
    """

    architecture: str
    n_layers: int
    n_embd: int
    n_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
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

    @classmethod
    def read(cls, gguf: GgufFile) -> "DecoderShape":
        """The shape of a file; BadModelFile or UnsupportedModel in one sentence that begins with the file's name."""
        try:
            shape = _read(gguf)
            _check_tensors(gguf, shape)
            _check_vocabulary(gguf, shape.n_vocab)
            if shape.head_dim % 8:
                raise UnsupportedModel(f"attention heads have {shape.head_dim} values; a multiple of 8 runs")
        except BadModelFile as error:
            raise type(error)(f"{quoted(gguf.path.name, 120)}: {error}") from None
        return shape


def _read(gguf: GgufFile) -> DecoderShape:
    arch = architecture(gguf)
    keys = Keys(gguf, arch)
    n_layers = keys.count("block_count", 1, MAX_LAYERS)
    n_embd = keys.count("embedding_length", 1, MAX_WIDTH)
    n_heads = keys.counts("attention.head_count", 1, MAX_HEADS, n_layers)
    n_kv_heads = keys.counts("attention.head_count_kv", 1, MAX_HEADS, n_layers, n_heads)
    if n_heads % n_kv_heads:
        raise BadModelFile(f"{arch}.attention.head_count_kv is {n_kv_heads}, which does not divide {n_heads} heads")
    head_dim = _head_dim(keys, n_embd, n_heads)
    n_ctx_train = keys.count("context_length", 1, MAX_CTX)
    n_ff = keys.counts("feed_forward_length", 1, MAX_WIDTH, n_layers)
    n_experts, n_used, n_ff_exp = _experts(keys, n_ff) if arch in MIXTURES else (0, 0, 0)
    shape = DecoderShape(
        architecture=arch,
        n_layers=n_layers,
        n_embd=n_embd,
        n_ff=n_ff,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        rope_dim=_rope_dim(keys, head_dim),
        rope_base=keys.real("rope.freq_base", 0.0, 1e12, 10000.0),
        rope_scaling=_rope_scaling(keys, n_ctx_train),
        eps=keys.real("attention.layer_norm_rms_epsilon", 0.0, 1.0),
        n_ctx_train=n_ctx_train,
        n_vocab=_n_vocab(gguf),
        tied="output.weight" not in gguf.tensors,
        n_experts=n_experts,
        n_used=n_used,
        n_ff_exp=n_ff_exp,
    )
    _refuse_other_maths(keys, shape)
    return shape


def _experts(keys: Keys, n_ff: int) -> tuple[int, int, int]:
    """How many there are, how many a row uses, their width; weights are softmax shares of the chosen ones."""
    n = keys.count("expert_count", 1, MAX_EXPERTS)
    used = keys.count("expert_used_count", 1, n)
    keys.neutral("expert_weights_norm", True)
    keys.neutral("expert_weights_scale", 1.0, 0.0)
    keys.neutral("expert_gating_func", 1, 0)
    return n, used, keys.count("expert_feed_forward_length", 1, MAX_WIDTH, max(1, n_ff // used))


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


def _rope_scaling(keys: Keys, n_ctx_train: int) -> RopeScaling:
    """An absent type with a factor means linear, as in files older than the type key."""
    key = "rope.scaling.factor" if keys.has("rope.scaling.factor") else "rope.scale_linear"
    keys.ignore("rope.scaling.factor", "rope.scale_linear")
    factor = keys.real(key, 0.0, 1e4, 1.0)
    kind = keys.text("rope.scaling.type", "linear" if factor != 1.0 else "none")
    n_ctx_orig = keys.count("rope.scaling.original_context_length", 1, MAX_CTX, n_ctx_train)
    scaling = RopeScaling(
        type=kind,
        factor=factor,
        n_ctx_orig=n_ctx_orig,
        ext_factor=keys.real("rope.scaling.yarn_ext_factor", -1.0, 1e3, 1.0),
        attn_factor=keys.real(_attn_factor_key(keys), 0.0, 1e3, 1.0),
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


def _attn_factor_key(keys: Keys) -> str:
    old, new = "rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"
    keys.ignore(old, new)
    return new if keys.has(new) else old


def _refuse_other_maths(keys: Keys, shape: DecoderShape) -> None:
    keys.ignore(*_HARMLESS)
    if not shape.n_experts:
        keys.neutral("expert_count", 0)
    keys.neutral("logit_scale", 1.0, 0.0)
    keys.neutral("residual_scale", 1.0, 0.0)
    keys.neutral("embedding_scale", 1.0, 0.0)
    keys.neutral("attention.causal", True)
    keys.neutral("attention.scale", 0.0, 1.0 / shape.head_dim**0.5)
    keys.neutral("use_parallel_residual", False)
    keys.neutral("attention.layer_norm_epsilon", 0.0, shape.eps)
    window = keys.count("attention.sliding_window", 0, 1 << 32, 0)
    if 0 < window < shape.n_ctx_train:
        raise UnsupportedModel(f"{keys.prefix}attention.sliding_window is {window}; windows are not supported")
    keys.refuse_unread()


def _n_vocab(gguf: GgufFile) -> int:
    embedding = gguf.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.dims) < 2:
        raise BadModelFile("there is no matrix token_embd.weight; the file is no whole language model")
    return embedding.n_rows


def _check_tensors(gguf: GgufFile, shape: DecoderShape) -> None:
    """Every matrix the model multiplies with is there and has the dimensions that the metadata promise."""
    for name, dims in expected_tensors(shape).items():
        info = gguf.tensors.get(name)
        if info is None:
            raise BadModelFile(f"the tensor {name} is missing ({shape.n_layers} layers are claimed); get a whole file")
        if info.dims[: len(dims)] != dims or any(dim != 1 for dim in info.dims[len(dims) :]):
            raise BadModelFile(f"the tensor {name} has dimensions {info.dims}; {dims} follow from the metadata")
        if len(dims) == 1 and info.type.name != "F32":
            raise UnsupportedModel(f"the tensor {name} is {info.type.name}; F32 is expected for a vector")
    if f"blk.{shape.n_layers}.attn_norm.weight" in gguf.tensors:
        key = f"{shape.architecture}.block_count"
        raise BadModelFile(f"{key} is {shape.n_layers}, but the file holds tensors of further layers")
    freqs = gguf.tensors.get(ROPE_FREQS)
    if freqs is not None and (freqs.dims != (shape.rope_dim // 2,) or freqs.type.name != "F32"):
        raise BadModelFile(f"{ROPE_FREQS} is {freqs.type.name} {freqs.dims}; F32 ({shape.rope_dim // 2},) is expected")


def _check_vocabulary(gguf: GgufFile, n_vocab: int) -> None:
    """Lists that are indexed by token id must be as long as the embedding has rows."""
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
