"""SmolLM3: a llama of which every fourth layer knows no positions. Not here: windows.

    x = embed(tokens)
    each layer:   x += o(attend(rope(q(n)), rope(k(n)), v(n)))   with n = norm(x); in layers 3, 7, 11 ... without rope
                  x += down(silu(gate(n)) * up(n))               with n = norm(x)
    logits = output(norm(x))

Hugging Face 2025; layers without positions: Yang et al. 2025 (arXiv:2501.18795). No key says which layers; rotation
turns neighbours.
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

PERIOD = 4


def read(keys: Keys) -> DecoderShape:
    return DecoderShape.of(keys)


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attn_norm = at.vector("attn_norm", s.n_embd)
        self.attention = Attention.claim(at, s)
        self.ffn_norm = at.vector("ffn_norm", s.n_embd)
        self.ffn = Gated.claim(at, s.n_embd, s.n_ff)


class Model(Decoder):
    layer = Layer

    def record(self, parts: "Parts") -> None:
        table = parts.rotation(self.rope_factors)
        self.open(parts)
        for i, w in enumerate(self.layers):
            n = parts.norm(w.attn_norm, *w.attention.inputs)
            w.attention.record(parts, n, i, table if (i + 1) % PERIOD else None)
            w.ffn.record(parts, parts.norm(w.ffn_norm, *w.ffn.inputs))
            parts.layer()
        self.close(parts)
