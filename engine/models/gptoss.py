"""gpt-oss: biases everywhere, a sink in each head's softmax, a window in every other layer, a clamped gated unit.

    x = embed(tokens)
    each layer:   x += o(attend(rope(q(n) + b_q), rope(k(n) + b_k), v(n) + b_v)) + b_o             n = norm(x)
                       a logit per head joins the sum of its softmax; layers 0, 2, 4 ... see `window` positions
                  x += sum of p_e * (down_e(h) + b_e) over the n_used greatest r_e                 n = norm(x)
                       r = router(n) + b_r, p = softmax of the chosen ones' r
                       h = g * sigmoid(1.702 g) * (u + 1), g = gate_e(n) + b, u = up_e(n) + b held within 7
    logits = output(norm(x))

OpenAI 2025 (arXiv:2508.10925). Halves turn, not neighbours; yarn's ramp is not rounded to whole pairs. Not here: MXFP4,
which is a quant type like any other.
"""

from dataclasses import replace

from engine.errors import UnsupportedModel
from engine.models.attention import Attention
from engine.models.claims import Scope
from engine.models.decoder import Decoder
from engine.models.ffn import ExpertLayer
from engine.models.keys import MAX_CTX, MAX_WIDTH, Keys
from engine.models.routing import Routing
from engine.models.shape import DecoderShape, mixture, rope_scaling
from engine.models.windows import windows

LIMIT = 7.0


def read(keys: Keys) -> DecoderShape:
    keys.neutral("expert_gating_func", 3, 0)
    keys.ignore("feed_forward_length")  # no layer is dense
    own = mixture(keys, keys.counts("expert_feed_forward_length", 1, MAX_WIDTH), Routing(is_share=True))
    if own["n_experts"] % 8:
        raise UnsupportedModel(f"{keys.prefix}expert_count is {own['n_experts']}; a multiple of 8 runs")
    scaling = rope_scaling(keys, keys.count("context_length", 1, MAX_CTX))
    return DecoderShape.of(
        keys, **own, windows=windows(keys, 2), rope_scaling=replace(scaling, is_rounded=False)
    )  # fmt: skip


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attn_norm = at.vector("attn_norm", s.n_embd)
        self.attention = Attention.claim(at, s, biased="qkvo", has_sinks=True)
        self.ffn_norm = at.vector("post_attention_norm", s.n_embd)
        self.ffn = ExpertLayer.claim(at, s, is_biased=True, limit=LIMIT)


class Model(Decoder):
    layer = Layer
