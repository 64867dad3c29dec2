"""GLM-4 (0414 and later), dense: norms before and behind each block. Not here: experts (glm4moe.py), vision.

    x = embed(tokens)
    each layer:   x += norm(o(attend(rope(q(n)), rope(k(n)), v(n))))   with n = norm(x); q, k, v may have biases
                  x += norm(down(silu(gate(n)) * up(n)))               with n = norm(x)
    logits = output(norm(x))

Zhipu 2025 (GLM-4: arXiv:2406.12793). Gate and up are one tensor; rotation turns neighbours, in half of each head.
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
    keys.neutral("nextn_predict_layers", 0)
    return DecoderShape.of(keys, joins_apart=True)


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attn_norm = at.vector("attn_norm", s.n_embd)
        self.attention = Attention.claim(at, s, biased="qkv" if at.has("attn_q", "bias") else "")
        self.post_attn_norm = at.vector("post_attention_norm", s.n_embd)
        self.ffn_norm = at.vector("ffn_norm", s.n_embd)
        self.ffn = Gated.claim(at, s.n_embd, s.n_ff, is_fused=True)
        self.post_ffn_norm = at.vector("post_ffw_norm", s.n_embd)


class Model(Decoder):
    layer = Layer

    def record(self, parts: "Parts") -> None:
        table = parts.rotation(self.rope_factors)
        self.open(parts)
        for i, w in enumerate(self.layers):
            n = parts.norm(w.attn_norm, *w.attention.inputs)
            w.attention.record(parts, n, i, table, post_norm=w.post_attn_norm)
            n = parts.norm(w.ffn_norm, *w.ffn.inputs)
            w.ffn.record(parts, n, post_norm=w.post_ffn_norm)
            parts.layer()
        self.close(parts)
