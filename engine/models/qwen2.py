"""Qwen2 and 2.5, Seed-OSS: a llama with biases of queries, keys and values. Not here: experts (qwen2moe.py), windows.

    x = embed(tokens)
    each layer:   x += o(attend(rope(q(n) + b_q), rope(k(n) + b_k), v(n) + b_v))   with n = norm(x)
                  x += down(silu(gate(n)) * up(n))                                 with n = norm(x)
    logits = output(norm(x))

Qwen team 2024 (arXiv:2407.10671). Rotation turns halves, not neighbours.
"""

from engine.models.attention import Attention
from engine.models.claims import Scope
from engine.models.decoder import Decoder
from engine.models.ffn import Gated
from engine.models.keys import Keys
from engine.models.shape import DecoderShape


def read(keys: Keys) -> DecoderShape:
    return DecoderShape.of(keys)


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attn_norm = at.vector("attn_norm", s.n_embd)
        self.attention = Attention.claim(at, s, biased="qkv")
        self.ffn_norm = at.vector("post_attention_norm" if s.architecture == "seed_oss" else "ffn_norm", s.n_embd)
        self.ffn = Gated.claim(at, s.n_embd, s.n_ff)


class Model(Decoder):
    layer = Layer
