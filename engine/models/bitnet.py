"""BitNet b1.58: a norm before o and before down too, weights of -1, 0 and 1. Not here: how such weights are packed.

    each layer:   x += o(norm(attend(rope(q(n)), rope(k(n)), v(n))))       n = norm(x)
                  x += down(norm(curve(gate(n)) * up(n)))                  n = norm(x)

Ma et al. 2024 (arXiv:2402.17764); curve: silu, and the squared relu in b1.58 2B4T (arXiv:2504.12285). Rotation turns
halves.
"""

from typing import TYPE_CHECKING

from engine.models.attention import Attention
from engine.models.claims import Scope
from engine.models.decoder import Decoder
from engine.models.ffn import Gated
from engine.models.keys import Keys
from engine.models.shape import DecoderShape

if TYPE_CHECKING:
    from engine.models.parts import Parts


def read(keys: Keys) -> DecoderShape:
    return DecoderShape.of(keys)


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attn_norm = at.vector("attn_norm", s.n_embd)
        self.attention = Attention.claim(at, s, has_sub_norm=True)
        self.ffn_norm = at.vector("ffn_norm", s.n_embd)
        self.ffn = Gated.claim(at, s.n_embd, s.n_ff, has_sub_norm=True)


class Model(Decoder):
    layer = Layer

    def record(self, parts: "Parts") -> None:
        table = parts.rotation(self.rope_factors)
        curve = "silu" if self.shape.architecture == "bitnet" else "relu2"
        self.open(parts)
        for i, w in enumerate(self.layers):
            w.attention.record(parts, parts.norm(w.attn_norm, *w.attention.inputs), i, table, neox=True)
            w.ffn.record(parts, parts.norm(w.ffn_norm, *w.ffn.inputs), curve=curve)
            parts.layer()
        self.close(parts)
