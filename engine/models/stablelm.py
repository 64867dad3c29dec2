"""StableLM 2: layer norms, a rope over the first values of a head, biases of q, k and v or none. Not here: the 12B one.

    each layer:   x += o(attend(rope(q(n)), rope(k(n)), v(n)))     n = norm(x)
                  x += down(silu(gate(n)) * up(n))                 n = norm(x)

Bellagente et al. 2024 (arXiv:2402.17834). Rotation turns halves.
"""

from typing import TYPE_CHECKING

from engine.models.attention import Attention
from engine.models.claims import Claims, Scope
from engine.models.decoder import Decoder
from engine.models.ffn import Gated
from engine.models.keys import Keys
from engine.models.shape import DecoderShape

if TYPE_CHECKING:
    from engine.models.parts import Parts


def read(keys: Keys) -> DecoderShape:
    return DecoderShape.of(keys, eps=keys.real("attention.layer_norm_epsilon", 0.0, 1.0))


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attn_norm, self.attn_norm_bias = at.vector("attn_norm", s.n_embd), at.bias("attn_norm", s.n_embd)
        self.attention = Attention.claim(at, s, biased="qkv" if at.has("attn_q", "bias") else "")
        self.ffn_norm, self.ffn_norm_bias = at.vector("ffn_norm", s.n_embd), at.bias("ffn_norm", s.n_embd)
        self.ffn = Gated.claim(at, s.n_embd, s.n_ff)


class Model(Decoder):
    layer = Layer
    has_layer_norm = True

    def __init__(self, shape: DecoderShape, store: Claims) -> None:
        super().__init__(shape, store)
        self.output_norm_bias = store.vector("output_norm.bias", shape.n_embd)

    def record(self, parts: "Parts") -> None:
        table = parts.rotation(self.rope_factors)
        self.open(parts)
        for i, w in enumerate(self.layers):
            n = parts.norm(w.attn_norm, *w.attention.inputs, bias=w.attn_norm_bias)
            w.attention.record(parts, n, i, table, neox=True)
            w.ffn.record(parts, parts.norm(w.ffn_norm, *w.ffn.inputs, bias=w.ffn_norm_bias))
            parts.layer()
        self.close(parts, norm_bias=self.output_norm_bias)
