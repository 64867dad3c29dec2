"""Attention over one compressed row per position (multi-head latent attention). Not here: the ops (kernels/latent.py).

    c, r = kv_a(n);  c = norm(c);  r = rope(r)                    all heads share a position's c and r
    q = q(n), or q_b(norm(q_a(n)));  each head's q = (p, rope(t))
    key of head h at a position: (K_h^T c, r), value: V_h c       so  q . key = (K_h p) . c + t . r
    x += o(each head's V_h (softmax(q . key) c))

DeepSeek-V2 (arXiv:2405.04434). New files hold K (attn_k_b) and V (attn_v_b) of each head, and the cache one row per
position for all heads: 576 values for 128 heads in place of 40,960, as a key and its first 512 once more as a value.
Files of old hold both as attn_kv_b, whose rows cannot be multiplied the other way round: there each head's keys and
values are cached.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import BadModelFile
from engine.models.claims import Scope
from engine.models.keys import MAX_HEADS, Keys

if TYPE_CHECKING:
    from engine.kernels.program import Buffer
    from engine.models.parts import Act, Parts
    from engine.models.shape import DecoderShape
    from engine.weights.tensor import ExpertMatrix, Matrix, Vector

MAX_RANK = 1 << 16
MAX_DIM = 1024


@dataclass(frozen=True, slots=True)
class LatentSizes:
    """`rank` values of a compressed row, `q_rank` of a compressed query (0: queries are not compressed); of a head's
    query `plain` values meet it, `rope_dim` turn; a head's value has `v_dim`. Scores are multiplied by `scale`."""

    n_heads: int
    rank: int
    q_rank: int
    plain: int
    rope_dim: int
    v_dim: int
    scale: float
    is_whole: bool
    """K and V are one tensor."""

    @property
    def n_kv_heads(self) -> int:
        return self.n_heads if self.is_whole else 1

    @property
    def k_dim(self) -> int:
        """Width of a cached key."""
        return (self.plain if self.is_whole else self.rank) + self.rope_dim

    @property
    def v_dim_kept(self) -> int:
        """Width of a cached value."""
        return self.v_dim if self.is_whole else self.rank


def read_latent(keys: Keys, factor: float) -> LatentSizes:
    """The sizes; scores are divided by sqrt(query width) and multiplied by `factor`."""
    n_heads = keys.counts("attention.head_count", 1, MAX_HEADS)
    is_whole = keys.gguf.tensors.get("blk.0.attn_kv_b.weight") is not None
    rank = keys.count("attention.kv_lora_rank", 8, MAX_RANK)
    rope_dim = keys.count("rope.dimension_count", 8, MAX_DIM)
    mla = "" if is_whole and not keys.has("attention.key_length_mla") else "_mla"
    width = keys.count(f"attention.key_length{mla}", rope_dim + 8, MAX_DIM)
    sizes = LatentSizes(
        n_heads=n_heads, rank=rank, q_rank=keys.count("attention.q_lora_rank", 0, MAX_RANK, 0),
        plain=width - rope_dim, rope_dim=rope_dim, v_dim=keys.count(f"attention.value_length{mla}", 8, MAX_DIM),
        scale=factor * width**-0.5, is_whole=is_whole,
    )  # fmt: skip
    for name, value in (
        ("kv_lora_rank", rank), ("q_lora_rank", sizes.q_rank), ("key_length", width), ("value_length", sizes.v_dim),
        ("rope.dimension_count", rope_dim),
    ):  # fmt: skip
        if value % 8:
            raise BadModelFile(f"{keys.prefix}attention: {name} is {value}; a multiple of 8 is expected")
    if mla:
        keys.neutral("attention.key_length", rank + rope_dim, width)
        keys.neutral("attention.value_length", rank, sizes.v_dim)
    keys.neutral("attention.head_count_kv", 1, n_heads)
    if is_whole and sizes.v_dim < rope_dim:
        raise BadModelFile(f"{keys.prefix}attention.value_length is {sizes.v_dim}; {rope_dim} or more is expected")
    return sizes


@dataclass(frozen=True)
class Latent:
    """One layer's: q_a and its norm where queries are compressed; k and v of each head, or both as kv."""

    q: "Matrix"
    kv_a: "Matrix"
    kv_norm: "Vector"
    o: "Matrix"
    q_a: "Matrix | None"
    q_norm: "Vector | None"
    k: "ExpertMatrix | None"
    v: "ExpertMatrix | None"
    kv: "Matrix | None"

    @classmethod
    def claim(cls, at: Scope, s: "DecoderShape") -> "Latent":
        z = s.latent
        assert z is not None
        n_q, squeezed = z.n_heads * (z.plain + z.rope_dim), z.q_rank > 0
        return cls(
            q_a=at.matrix("attn_q_a", s.n_embd, z.q_rank) if squeezed else None,
            q_norm=at.vector("attn_q_a_norm", z.q_rank) if squeezed else None,
            q=at.matrix("attn_q_b", z.q_rank, n_q) if squeezed else at.matrix("attn_q", s.n_embd, n_q),
            kv_a=at.matrix("attn_kv_a_mqa", s.n_embd, z.rank + z.rope_dim),
            kv_norm=at.vector("attn_kv_a_norm", z.rank),
            k=None if z.is_whole else at.experts("attn_k_b", z.plain, z.rank, z.n_heads),
            v=None if z.is_whole else at.experts("attn_v_b", z.rank, z.v_dim, z.n_heads),
            kv=at.matrix("attn_kv_b", z.rank, z.n_heads * (z.plain + z.v_dim)) if z.is_whole else None,
            o=at.matrix("attn_output", z.n_heads * z.v_dim, s.n_embd),
        )

    @property
    def inputs(self) -> "tuple[Matrix, ...]":
        """What multiplies with the layer's input."""
        return self.kv_a, self.q_a or self.q

    def record(self, parts: "Parts", n: "Act", i: int, table: "Buffer") -> None:
        """x += attention of `n` in layer i."""
        from engine.models.compressed import record_latent

        record_latent(self, parts, n, i, table)
