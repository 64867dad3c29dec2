"""Attention of grouped queries as most families have it: q, k, v side by side, o back into x. Not here: the ops.

    q, k, v = products of n (+ biases);  q, k normalised by head or as a whole row, where there are weights for that
    x += o(attend(rope(q), rope(k), v))

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


@dataclass(frozen=True)
class Attention:
    """One layer's. `q_norm` and `k_norm` are as wide as a head or as all of them together."""

    q: "Matrix"
    k: "Matrix"
    v: "Matrix"
    o: "Matrix"
    biases: "tuple[Vector | None, ...]" = (None, None, None, None)
    q_norm: "Vector | None" = None
    k_norm: "Vector | None" = None

    @classmethod
    def claim(
        cls, at: Scope, s: DecoderShape, *, biased: str = "", norms: tuple[int, int] | None = None
    ) -> "Attention":
        """`biased`: which of q, k, v and o have a bias; `norms`: the widths of attn_q_norm and attn_k_norm."""
        n_q, n_k, n_v = s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim, s.n_kv_heads * s.v_dim
        return cls(
            q=at.matrix("attn_q", s.n_embd, n_q),
            k=at.matrix("attn_k", s.n_embd, n_k),
            v=at.matrix("attn_v", s.n_embd, n_v),
            o=at.matrix("attn_output", s.n_heads * s.v_dim, s.n_embd),
            biases=tuple(
                at.bias(name, n) if letter in biased else None
                for letter, name, n in zip(
                    "qkvo", ("attn_q", "attn_k", "attn_v", "attn_output"), (n_q, n_k, n_v, s.n_embd), strict=True
                )
            ),
            q_norm=at.vector("attn_q_norm", norms[0]) if norms else None,
            k_norm=at.vector("attn_k_norm", norms[1]) if norms else None,
        )

    @property
    def inputs(self) -> "tuple[Matrix, ...]":
        """What multiplies with the layer's input."""
        return self.q, self.k, self.v

    def record(
        self, parts: "Parts", n: "Act", i: int, table: "Buffer | None", *, neox: bool = False,
        scale: float | None = None, window: int = 0, soft_cap: float = 0.0, post_norm: "Vector | None" = None,
    ) -> None:  # fmt: skip
        """x += attention of `n` in layer i; by default scores are divided by sqrt(head_dim). Without a `table` nothing
        turns; `neox`: halves turn, not neighbours; `window`, `soft_cap`: see Parts.attention; `post_norm`: what joins x
        is normalised."""
        columns = (0, self.q.n, self.q.n + self.k.n)
        for matrix, bias, column in zip(self.inputs, self.biases[:3], columns, strict=True):
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
            i, table, attended, neox=neox, scale=scale, window=window, soft_cap=soft_cap, head_norms=head_norms
        )
        parts.add_product(self.o, attended, bias=self.biases[3], post_norm=post_norm)
        parts.program.barrier()
