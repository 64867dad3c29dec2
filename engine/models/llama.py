"""The llama family: Llama 1 to 3.x, Mistral, Mixtral, SmolLM, Yi and whatever else says `llama`; ERNIE 4.5, InternLM 2.

    x = embed(tokens)
    each layer:   x += o(attend(rope(q(n)), rope(k(n)), v(n)))   with n = norm(x)
                  x += down(silu(gate(n)) * up(n))               with n = norm(x), or the same of a mixture of experts
    logits = output(norm(x))

Touvron et al. 2023 (arXiv:2302.13971); experts: Jiang et al. 2024 (arXiv:2401.04088). GGUF files of this family have q
and k permuted so that rotation turns neighbours, not halves. InternLM 1 has biases, the first Mistral a
window in all layers. Not here: experts that all rows go through.
"""

from engine.models.attention import Attention, biased_in
from engine.models.claims import Scope
from engine.models.decoder import Decoder
from engine.models.ffn import feed_forward
from engine.models.keys import MAX_CTX, MAX_EXPERTS, MAX_WIDTH, Keys
from engine.models.shape import DecoderShape, mixture


def read(keys: Keys) -> DecoderShape:
    window = keys.count("attention.sliding_window", 0, 1 << 32, 0)
    windows = (window,) * keys.n_blocks if 0 < window < keys.count("context_length", 1, MAX_CTX) else ()
    if not keys.count("expert_count", 0, MAX_EXPERTS, 0):
        return DecoderShape.of(keys, windows=windows)
    return DecoderShape.of(keys, windows=windows, **mixture(keys, keys.counts("feed_forward_length", 1, MAX_WIDTH)))


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attn_norm = at.vector("attn_norm", s.n_embd)
        self.attention = Attention.claim(at, s, biased=biased_in(at))
        self.ffn_norm = at.vector("ffn_norm", s.n_embd)
        self.ffn = feed_forward(at, s)


class Model(Decoder):
    layer = Layer
    is_neox = False
