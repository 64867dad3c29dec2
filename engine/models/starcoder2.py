"""StarCoder2: layer norms, biases everywhere, a feed-forward without a gate. Not here: StarCoder 1, which is another.

    each layer:   x += o(attend(rope(q(n)), rope(k(n)), v(n)))     n = norm(x); each product with a bias
                  x += down(gelu(up(n)))                           n = norm(x)

Lozhkov et al. 2024 (arXiv:2402.19173). Rotation turns halves. The models were trained with a window of 4,096 positions;
GGUF files rarely say so, and one that does not is computed without.
"""

from typing import TYPE_CHECKING

from engine.models.attention import Attention
from engine.models.claims import Claims, Scope
from engine.models.decoder import Decoder
from engine.models.ffn import Plain
from engine.models.keys import Keys
from engine.models.shape import DecoderShape
from engine.models.windows import windows

if TYPE_CHECKING:
    from engine.models.parts import Parts


def read(keys: Keys) -> DecoderShape:
    eps = keys.real("attention.layer_norm_epsilon", 0.0, 1.0)
    return DecoderShape.of(keys, eps=eps, windows=windows(keys, 0, 0))


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attn_norm, self.attn_norm_bias = at.vector("attn_norm", s.n_embd), at.bias("attn_norm", s.n_embd)
        self.attention = Attention.claim(at, s, biased="qkvo")
        self.ffn_norm, self.ffn_norm_bias = at.vector("ffn_norm", s.n_embd), at.bias("ffn_norm", s.n_embd)
        self.ffn = Plain.claim(at, s.n_embd, s.n_ff)


class Model(Decoder):
    layer = Layer
    has_layer_norm = True

    def __init__(self, shape: DecoderShape, store: Claims) -> None:
        super().__init__(shape, store)
        self.output_norm_bias = store.vector("output_norm.bias", shape.n_embd)

    def record(self, parts: "Parts") -> None:
        s = self.shape
        table = parts.rotation(self.rope_factors)
        self.open(parts)
        for i, w in enumerate(self.layers):
            n = parts.norm(w.attn_norm, *w.attention.inputs, bias=w.attn_norm_bias)
            w.attention.record(parts, n, i, table, neox=True, window=s.window(i))
            n = parts.norm(w.ffn_norm, *w.ffn.inputs, bias=w.ffn_norm_bias)
            w.ffn.record(parts, n, curve="gelu")
            parts.layer()
        self.close(parts, norm_bias=self.output_norm_bias)
