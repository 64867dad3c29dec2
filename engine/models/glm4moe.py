"""GLM-4.5: sigmoid routing with a bias for the choice, an expert that all rows go through, dense first layers.

    x = embed(tokens)
    each layer:   x += o(attend(rope(q(n) + b_q), rope(k(n) + b_k), v(n) + b_v))                   n = norm(x)
                       q and k normalised head by head where the file has weights for that
                  x += shared(n) + sum of p_e * expert_e(n) over the n_used greatest s_e + b_e     n = norm(x)
                       s = sigmoid(router(n)), p = s of the chosen ones, divided by their sum, times a factor
      or          x += down(silu(gate(n)) * up(n))   in the first n_dense layers
    logits = output(norm(x))

GLM team 2025 (arXiv:2508.06471). Half of each head turns, halves of it together. Not here:
layers that guess further tokens (nextn), which change no token's logits.
"""

from typing import TYPE_CHECKING

from engine.models.attention import Attention
from engine.models.claims import Scope
from engine.models.decoder import Decoder
from engine.models.ffn import feed, feed_forward, shared_expert
from engine.models.keys import Keys
from engine.models.routing import SIGMOID
from engine.models.shape import DecoderShape, shared_mixture

if TYPE_CHECKING:
    from engine.models.parts import Parts


def read(keys: Keys) -> DecoderShape:
    return DecoderShape.of(keys, **shared_mixture(keys, SIGMOID))


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attn_norm = at.vector("attn_norm", s.n_embd)
        norms = (s.head_dim, s.head_dim) if at.has("attn_q_norm") else None
        self.attention = Attention.claim(at, s, norms=norms, biased="qkv" if at.has("attn_q", "bias") else "")
        self.ffn_norm = at.vector("post_attention_norm", s.n_embd)
        self.ffn = feed_forward(at, s, has_favour=s.routing.is_sigmoid)
        self.shared = shared_expert(at, s)


class Model(Decoder):
    layer = Layer

    def record(self, parts: "Parts") -> None:
        table = parts.rotation()
        self.open(parts)
        for i, w in enumerate(self.layers):
            w.attention.record(parts, parts.norm(w.attn_norm, *w.attention.inputs), i, table, neox=True)
            feed(parts, w.ffn_norm, w.shared, w.ffn)
            parts.layer()
        self.close(parts)
