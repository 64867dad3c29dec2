"""OLMoE: a mixture in every layer; queries and keys are normalised as whole rows, over all their heads.

    x = embed(tokens)
    each layer:   x += o(attend(rope(norm_q(q(n))), rope(norm_k(k(n))), v(n)))                       n = norm(x)
                  x += sum of p_e * down_e(silu(gate_e(n)) * up_e(n)) over the n_used likeliest e    n = norm(x)
                       p = softmax(router(n)), as it is: the chosen ones do not sum up to 1
    logits = output(norm(x))

Muennighoff et al. 2024 (arXiv:2409.02060). Rotation turns halves, not neighbours. Not here: shared experts.
"""

from engine.models.attention import Attention
from engine.models.claims import Scope
from engine.models.decoder import Decoder
from engine.models.ffn import ExpertLayer
from engine.models.keys import MAX_WIDTH, Keys
from engine.models.routing import Routing
from engine.models.shape import DecoderShape, mixture


def read(keys: Keys) -> DecoderShape:
    n_ff = keys.counts("feed_forward_length", 1, MAX_WIDTH)
    n_ff_exp = keys.count("expert_feed_forward_length", 1, MAX_WIDTH, n_ff)
    return DecoderShape.of(keys, **mixture(keys, n_ff_exp, Routing(is_share=False)))


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attn_norm = at.vector("attn_norm", s.n_embd)
        self.attention = Attention.claim(at, s, norms=(s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim))
        self.ffn_norm = at.vector("ffn_norm", s.n_embd)
        self.ffn = ExpertLayer.claim(at, s)


class Model(Decoder):
    layer = Layer
