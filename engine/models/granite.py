"""Granite 3 and 4, dense and with experts, MiniCPM: a llama with four multipliers. Not here: hybrids with states.

    x = e embed(tokens)
    each layer:   x += r o(attend(rope(q(n)), rope(k(n)), v(n)))   with n = norm(x), scores times a
                  x += r down(silu(gate(n)) * up(n))               with n = norm(x)
      or          x += r (mixture(n) + down_s(silu(gate_s(n)) * up_s(n)))
                       weights: softmax over the chosen experts alone; s: what all rows go through, if any
    logits = output(norm(x)) / l

Granite team 2024; the multipliers: Yang et al. 2022 (arXiv:2203.03466). Rotation turns neighbours. What is kept here is
x / r: nothing that joins it is multiplied then, and a norm does not see it if its epsilon is divided by r^2.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.models.attention import Attention, biased_in
from engine.models.claims import Scope
from engine.models.decoder import Decoder
from engine.models.ffn import Gated, feed_forward
from engine.models.keys import MAX_WIDTH, Keys
from engine.models.shape import DecoderShape, mixture

if TYPE_CHECKING:
    from engine.models.parts import Parts


@dataclass(frozen=True, slots=True)
class GraniteShape(DecoderShape):
    """`embedding_scale` is e / r, `score_scale` a, `logit_scale` 1 / l."""

    embedding_scale: float = 1.0
    score_scale: float | None = None
    logit_scale: float = 1.0
    turns: bool = True


def _factor(keys: Keys, name: str) -> float:
    """1 where it is 0 or absent. Old files of MiniCPM lack it and mean something else: it must be there."""
    return keys.real(name, -5e-324, 1e6, None if keys.architecture == "minicpm" else 1.0) or 1.0


def read(keys: Keys) -> GraniteShape:
    r = _factor(keys, "residual_scale")
    own = _experts(keys) if keys.architecture == "granitemoe" else {}
    return GraniteShape.of(
        keys,
        **own,
        eps=keys.real("attention.layer_norm_rms_epsilon", 0.0, 1.0) / r**2,
        embedding_scale=_factor(keys, "embedding_scale") / r,
        score_scale=keys.real("attention.scale", -5e-324, 1e6, 0.0) or None,
        logit_scale=1.0 / _factor(keys, "logit_scale"),
        turns=keys.flag("rope.scaling.finetuned", True),
    )


def _experts(keys: Keys) -> dict[str, object]:
    n_ff = keys.counts("feed_forward_length", 1, MAX_WIDTH)
    n_shared = keys.count("expert_shared_feed_forward_length", 0, MAX_WIDTH, 0)
    return mixture(keys, n_ff) | {"n_ff_shared": n_shared}


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attn_norm = at.vector("attn_norm", s.n_embd)
        self.attention = Attention.claim(at, s, biased=biased_in(at))
        self.ffn_norm = at.vector("ffn_norm", s.n_embd)
        self.ffn = feed_forward(at, s)
        self.shared = Gated.claim(at, s.n_embd, s.n_ff_shared, "_shexp") if s.n_ff_shared else None


class Model(Decoder):
    layer = Layer
    shape: GraniteShape

    def record(self, parts: "Parts") -> None:
        s = self.shape
        table = parts.rotation(self.rope_factors) if s.turns else None
        self.open(parts, scale=s.embedding_scale)
        for i, w in enumerate(self.layers):
            n = parts.norm(w.attn_norm, *w.attention.inputs)
            w.attention.record(parts, n, i, table, scale=s.score_scale)
            n = parts.norm(w.ffn_norm, *w.ffn.inputs, *(w.shared.inputs if w.shared else ()))
            w.ffn.record(parts, n)
            if w.shared:
                w.shared.record(parts, n)
            parts.layer()
        self.close(parts, scale=s.logit_scale)
