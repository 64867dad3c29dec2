"""Feed-forward halves of layers: gated, plain, or a mixture. Not here: the ops, how experts are chosen (mixture.py).

    gated     x += down(curve(gate(n)) * up(n))                                 Shazeer 2020 (arXiv:2002.05202)
    plain     x += down(curve(up(n) + b)) + c                                   Vaswani et al. 2017 (arXiv:1706.03762)
    mixture   x += sum of p_e * down_e(silu(gate_e(n)) * up_e(n))               Shazeer et al. 2017 (arXiv:1701.06538)
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.models.claims import Scope
from engine.models.routing import Routing
from engine.models.shape import DecoderShape

if TYPE_CHECKING:
    from engine.models.parts import Act, Parts
    from engine.weights.tensor import ExpertMatrix, Matrix, Vector


@dataclass(frozen=True)
class Gated:
    """One layer's gate, up (n_embd -> n_ff) and down."""

    gate: "Matrix"
    up: "Matrix"
    down: "Matrix"
    sub_norm: "Vector | None" = None

    @classmethod
    def claim(
        cls, at: Scope, n_embd: int, n_ff: int, suffix: str = "", *, is_fused: bool = False, has_sub_norm: bool = False
    ) -> "Gated":
        """`is_fused`: gate and up are one tensor, ffn_up; `has_sub_norm`: what meets down is normalised before."""
        gate, up = (
            at.halves(f"ffn_up{suffix}", n_embd, n_ff)
            if is_fused
            else (at.matrix(f"ffn_gate{suffix}", n_embd, n_ff), at.matrix(f"ffn_up{suffix}", n_embd, n_ff))
        )
        return cls(
            gate=gate,
            up=up,
            down=at.matrix(f"ffn_down{suffix}", n_ff, n_embd),
            sub_norm=at.vector("ffn_sub_norm", n_ff) if has_sub_norm else None,
        )

    @property
    def inputs(self) -> "tuple[Matrix, ...]":
        """What multiplies with the layer's input."""
        return self.gate, self.up

    def record(
        self, parts: "Parts", n: "Act", *, curve: str = "silu", post_norm: "Vector | None" = None,
        share: "Vector | None" = None,
    ) -> None:  # fmt: skip
        """`curve`: silu, gelu or relu2; `post_norm`: what joins x is normalised; `share`: it is multiplied by
        sigmoid(share . n)."""
        act = parts.gated(self.gate, self.up, n, self.down, curve=curve, norm=self.sub_norm, share=share)
        parts.add_product(self.down, act, post_norm=post_norm)


@dataclass(frozen=True)
class Plain:
    """One layer's up (n_embd -> n_ff) and down, each with a bias; no gate."""

    up: "Matrix"
    down: "Matrix"
    up_bias: "Vector"
    down_bias: "Vector"

    @classmethod
    def claim(cls, at: Scope, n_embd: int, n_ff: int) -> "Plain":
        return cls(
            up=at.matrix("ffn_up", n_embd, n_ff),
            down=at.matrix("ffn_down", n_ff, n_embd),
            up_bias=at.bias("ffn_up", n_ff),
            down_bias=at.bias("ffn_down", n_embd),
        )

    @property
    def inputs(self) -> "tuple[Matrix, ...]":
        """What multiplies with the layer's input."""
        return (self.up,)

    def record(self, parts: "Parts", n: "Act", *, curve: str) -> None:
        """`curve`: silu, gelu or relu2."""
        act = parts.curved(self.up, n, self.down, curve=curve, bias=self.up_bias)
        parts.add_product(self.down, act, bias=self.down_bias)


@dataclass(frozen=True, eq=False)
class ExpertLayer:
    """One layer's router (n_embd -> experts) and experts. `favour` is added to scores for the choice alone; `biases`
    (experts x rows each) are those of gate, up and down; with a `limit` they join as in gpt-oss (kernels/gated.py)."""

    router: "Matrix"
    gate: "ExpertMatrix"
    up: "ExpertMatrix"
    down: "ExpertMatrix"
    routing: Routing
    router_bias: "Vector | None" = None
    favour: "Vector | None" = None
    biases: "tuple[Vector, Vector, Vector] | None" = None
    limit: float = 0.0

    @classmethod
    def claim(
        cls, at: Scope, s: DecoderShape, *, is_biased: bool = False, has_favour: bool = False, limit: float = 0.0
    ) -> "ExpertLayer":
        """`is_biased`: router, gate, up and down have biases."""
        n, n_ff, n_embd = s.n_experts, s.n_ff_exp, s.n_embd
        return cls(
            router=at.matrix("ffn_gate_inp", s.n_embd, s.n_experts),
            gate=at.experts("ffn_gate_exps", s.n_embd, s.n_ff_exp, s.n_experts),
            up=at.experts("ffn_up_exps", s.n_embd, s.n_ff_exp, s.n_experts),
            down=at.experts("ffn_down_exps", s.n_ff_exp, s.n_embd, s.n_experts),
            routing=s.routing,
            router_bias=at.bias("ffn_gate_inp", n) if is_biased else None,
            favour=at.bias("exp_probs_b", n) if has_favour else None,
            biases=(
                at.bias("ffn_gate_exps", n_ff, n), at.bias("ffn_up_exps", n_ff, n), at.bias("ffn_down_exps", n_embd, n)
            ) if is_biased else None,
            limit=limit,
        )  # fmt: skip

    @property
    def inputs(self) -> "tuple[Matrix, ...]":
        """What multiplies with the layer's input."""
        return self.router, self.gate.whole, self.up.whole

    @property
    def parts(self) -> "tuple[ExpertMatrix, ExpertMatrix, ExpertMatrix]":
        """Gate, up and down."""
        return self.gate, self.up, self.down

    @property
    def expert_bytes(self) -> int:
        """Gate, up and down of one expert."""
        return sum(m.n_bytes for m in self.parts)

    def record(self, parts: "Parts", n: "Act") -> None:
        assert parts.mixture is not None
        parts.mixture.record(self, n)


def feed_forward(at: Scope, s: DecoderShape, *, has_favour: bool = False) -> Gated | ExpertLayer:
    """What a layer has of the two: experts where the model has any, but for its first n_dense layers."""
    if s.n_experts and at.i >= s.n_dense:
        return ExpertLayer.claim(at, s, has_favour=has_favour)
    return Gated.claim(at, s.n_embd, s.n_ff)


def shared_expert(at: Scope, s: DecoderShape) -> Gated | None:
    """What all rows of a layer go through beside its experts, if the model has that and the layer has experts."""
    return Gated.claim(at, s.n_embd, s.n_ff_shared, "_shexp") if s.n_ff_shared and at.i >= s.n_dense else None


def feed(parts: "Parts", norm: "Vector", *halves: Gated | ExpertLayer | None) -> None:
    """x += each half of the same normed x."""
    found = [half for half in halves if half is not None]
    n = parts.norm(norm, *(matrix for half in found for matrix in half.inputs))
    for half in found:
        half.record(parts, n)
