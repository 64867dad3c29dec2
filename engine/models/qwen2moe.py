"""Qwen1.5 and Qwen2 with experts: a mixture, and beside it an expert that all rows go through, with a gate of its own.

    x = embed(tokens)
    each layer:   x += o(attend(rope(q(n) + b_q), rope(k(n) + b_k), v(n) + b_v))                          n = norm(x)
                  x += sigmoid(g . n) * shared(n) + sum of p_e * expert_e(n) over the n_used likeliest    n = norm(x)
                       p = softmax(router(n));  shared(n), expert_e(n) = down(silu(gate(n)) * up(n))
    logits = output(norm(x))

Qwen team 2024 (arXiv:2407.10671). Rotation turns halves, not neighbours. Not here: choosing experts (mixture.py).
"""

from typing import TYPE_CHECKING

from engine.models.attention import Attention
from engine.models.claims import Scope
from engine.models.decoder import Decoder
from engine.models.ffn import ExpertLayer, Gated
from engine.models.keys import MAX_EXPERTS, MAX_WIDTH, Keys
from engine.models.routing import Routing
from engine.models.shape import DecoderShape, mixture

if TYPE_CHECKING:
    from engine.models.parts import Parts


def read(keys: Keys) -> DecoderShape:
    n_ff, n_used = keys.counts("feed_forward_length", 1, MAX_WIDTH), keys.count("expert_used_count", 1, MAX_EXPERTS)
    n_ff_exp = keys.count("expert_feed_forward_length", 1, MAX_WIDTH, max(1, n_ff // n_used))
    n_ff_shared = keys.count("expert_shared_feed_forward_length", 1, MAX_WIDTH, n_ff)
    own = mixture(keys, n_ff_exp, Routing(is_share=False))
    return DecoderShape.of(keys, **own, n_ff_shared=n_ff_shared)


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attn_norm = at.vector("attn_norm", s.n_embd)
        self.attention = Attention.claim(at, s, biased="qkv")
        self.ffn_norm = at.vector("ffn_norm", s.n_embd)
        self.ffn = ExpertLayer.claim(at, s)
        self.shared = Gated.claim(at, s.n_embd, s.n_ff_shared, "_shexp")
        self.gate = at.vector("ffn_gate_inp_shexp", s.n_embd)


class Model(Decoder):
    layer = Layer

    def record(self, parts: "Parts") -> None:
        table = parts.rotation(self.rope_factors)
        self.open(parts)
        for i, w in enumerate(self.layers):
            w.attention.record(parts, parts.norm(w.attn_norm, *w.attention.inputs), i, table, neox=True)
            n = parts.norm(w.ffn_norm, *w.ffn.inputs, *w.shared.inputs, w.gate)
            w.shared.record(parts, n, share=w.gate)
            w.ffn.record(parts, n)
            parts.layer()
        self.close(parts)
