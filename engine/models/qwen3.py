"""Qwen3, dense and with experts: queries and keys are normalised head by head. Not here: shared experts.

    x = embed(tokens)
    each layer:   x += o(attend(rope(norm_q(q(n))), rope(norm_k(k(n))), v(n)))                       n = norm(x)
                  x += down(silu(gate(n)) * up(n))                                                   n = norm(x)
      or          x += sum of p_e * down_e(silu(gate_e(n)) * up_e(n)) over the n_used likeliest e
                       p = softmax(router(n)), the chosen ones divided by their sum
    logits = output(norm(x))

Qwen team 2025 (arXiv:2505.09388). Rotation turns halves, not neighbours.
"""

from engine.models.attention import Attention
from engine.models.claims import Scope
from engine.models.decoder import Decoder
from engine.models.ffn import feed_forward
from engine.models.keys import MAX_EXPERTS, MAX_WIDTH, Keys
from engine.models.shape import DecoderShape, mixture


def read(keys: Keys) -> DecoderShape:
    if keys.architecture == "qwen3":
        return DecoderShape.of(keys)
    n_ff, n_used = keys.counts("feed_forward_length", 1, MAX_WIDTH), keys.count("expert_used_count", 1, MAX_EXPERTS)
    n_ff_exp = keys.count("expert_feed_forward_length", 1, MAX_WIDTH, max(1, n_ff // n_used))
    return DecoderShape.of(keys, **mixture(keys, n_ff_exp))


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attn_norm = at.vector("attn_norm", s.n_embd)
        self.attention = Attention.claim(at, s, norms=(s.head_dim, s.head_dim))
        self.ffn_norm = at.vector("ffn_norm", s.n_embd)
        self.ffn = feed_forward(at, s)


class Model(Decoder):
    layer = Layer
