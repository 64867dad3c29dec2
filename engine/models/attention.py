"""Attention of grouped queries as most families have it: q, k, v side by side, o back into x. Not here: the ops.

    q, k, v = products of n (+ biases);  q, k normalised by head or as a whole row, where there are weights for that
    x += o(attend(rope(q), rope(k), v)), what is attended normalised where there is a weight for that

Grouped queries: Ainslie et al. 2023 (arXiv:2305.13245); normalised heads: Henry et al. 2020 (arXiv:2010.04245).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.models.claims import Scope
from engine.models.shape import DecoderShape

if TYPE_CHECKING:
    from engine.kernels.program import Buffer
    from engine.models.parts import Act, Parts
    from engine.weights.tensor import Matrix, Vector


def biased_in(at: Scope) -> str:
    """Which of q, k, v and o have a bias in the file, where a family has them or not."""
    names = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output"}
    return "".join(letter for letter, name in names.items() if at.has(name, "bias"))


@dataclass(frozen=True)
class Attention:
    """One layer's. `inputs`, which multiply with the layer's input, are q, k and v or one matrix that is all three.
    `q_norm` and `k_norm` are as wide as a head or as all of them together."""

    inputs: "tuple[Matrix, ...]"
    o: "Matrix"
    widths: tuple[int, int, int]
    biases: "tuple[Vector | None, ...]" = (None, None, None)
    o_bias: "Vector | None" = None
    q_norm: "Vector | None" = None
    k_norm: "Vector | None" = None
    sub_norm: "Vector | None" = None
    sinks: "Vector | None" = None

    @classmethod
    def claim(
        cls, at: Scope, s: DecoderShape, *, biased: str = "", norms: tuple[int, int] | None = None,
        is_fused: bool = False, has_sub_norm: bool = False, has_sinks: bool = False,
    ) -> "Attention":  # fmt: skip
        """`biased`: which of q, k, v and o have a bias; `norms`: the widths of attn_q_norm and attn_k_norm; `is_fused`:
        q, k and v are one tensor, attn_qkv; `has_sinks`: a logit of each head joins its softmax's sum."""
        n_q, n_k, n_v = s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim, s.n_kv_heads * s.v_dim
        n_attended = s.n_heads * s.v_dim
        names = {"attn_qkv": n_q + n_k + n_v} if is_fused else {"attn_q": n_q, "attn_k": n_k, "attn_v": n_v}
        return cls(
            inputs=tuple(at.matrix(name, s.n_embd, n) for name, n in names.items()),
            o=at.matrix("attn_output", n_attended, s.n_embd),
            widths=(n_q, n_k, n_v),
            biases=tuple(at.bias(name, n) if name[5:] in biased else None for name, n in names.items()),
            o_bias=at.bias("attn_output", s.n_embd) if "o" in biased else None,
            q_norm=at.vector("attn_q_norm", norms[0]) if norms else None,
            k_norm=at.vector("attn_k_norm", norms[1]) if norms else None,
            sub_norm=at.vector("attn_sub_norm", n_attended) if has_sub_norm else None,
            sinks=at.vector("attn_sinks", s.n_heads) if has_sinks else None,
        )

    def record(
        self, parts: "Parts", n: "Act", i: int, table: "Buffer | None", *, neox: bool = False,
        scale: float | None = None, window: int = 0, soft_cap: float = 0.0, post_norm: "Vector | None" = None,
    ) -> None:  # fmt: skip
        """x += attention of `n` in layer i; by default scores are divided by sqrt(head_dim). Without a `table` nothing
        turns; `neox`: halves turn, not neighbours; `window`, `soft_cap`: see Parts.attention; `post_norm`:
        what joins x is normalised."""
        columns = (0, self.widths[0], self.widths[0] + self.widths[1])
        for matrix, bias, column in zip(self.inputs, self.biases, columns, strict=False):
            parts.matmul(matrix, n, parts.qkv, parts.ld_qkv, column, bias=bias)
        parts.program.barrier()
        head_norms = None
        if self.q_norm and self.k_norm:
            if self.q_norm.k == self.k_norm.k == parts.shape.head_dim:
                head_norms = self.q_norm, self.k_norm
            else:
                parts.norm_columns(self.q_norm, columns[0])
                parts.norm_columns(self.k_norm, columns[1])
                parts.program.barrier()
        attended = parts.act("attended", self.o.k, self.o)
        parts.attention(
            i, table, attended, neox=neox, scale=scale, window=window, soft_cap=soft_cap, head_norms=head_norms,
            sub_norm=self.sub_norm, sinks=self.sinks,
        )  # fmt: skip
        parts.add_product(self.o, attended, bias=self.o_bias, post_norm=post_norm)
        parts.program.barrier()
