"""BERT and its kin, which read a text whole and make vectors: BGE, E5, MiniLM; Nomic's, which turns. Not here: pooling.

    x = norm(tokens + kind of text + positions)
    each layer:   x = norm(x + o(attend(q(x), k(x), v(x))))     all rows see all of the text; norms centre, with a bias
                  x = norm(x + down(gelu(up(x))))               bert: biases everywhere, gelu itself (by erf)
                  x = norm(x + down(silu(gate(x)) * up(x)))     nomic-bert: no biases; halves of q and k turn, no places

Devlin et al. 2018 (arXiv:1810.04805); Nussbaum et al. 2024 (arXiv:2402.01613). Every token is of the first kind of
text: what asks for vectors has one text, not two. Nothing here generates.
"""

from typing import TYPE_CHECKING

from engine.models import ranking
from engine.models.attention import Attention
from engine.models.claims import Claims, Scope
from engine.models.decoder import Decoder
from engine.models.ffn import Gated, Plain
from engine.models.keys import Keys
from engine.models.shape import DecoderShape, RopeScaling

if TYPE_CHECKING:
    from engine.models.parts import Parts

_KINDS = "token_types.weight"


def read(keys: Keys) -> DecoderShape:
    keys.neutral("attention.causal", False)
    own = {"eps": keys.real("attention.layer_norm_epsilon", 0.0, 1.0), "tied": False, "is_encoder": True}
    if keys.architecture == "nomic-bert":
        keys.neutral("moe_every_n_layers", 0)
        return DecoderShape.of(keys, **own)
    n_ctx_train = keys.count("context_length", 1, 1 << 20)
    return DecoderShape.of(keys, **own, n_places=n_ctx_train, rope_base=0.0, rope_scaling=RopeScaling())


class Layer:
    ffn: Gated | Plain

    def __init__(self, at: Scope, s: DecoderShape) -> None:
        is_fused = at.has("attn_qkv")
        biased = ("qkv" if at.has("attn_qkv" if is_fused else "attn_q", "bias") else "") + (
            "o" if at.has("attn_output", "bias") else ""
        )
        self.attention = Attention.claim(at, s, biased=biased, is_fused=is_fused)
        self.attn_norm, self.attn_bias = (f("attn_output_norm", s.n_embd) for f in (at.vector, at.bias))
        self.ffn = Plain.claim(at, s.n_embd, s.n_ff) if s.n_places else Gated.claim(at, s.n_embd, s.n_ff)
        self.ffn_norm, self.ffn_bias = (f("layer_output_norm", s.n_embd) for f in (at.vector, at.bias))


class Model(Decoder):
    layer = Layer

    def __init__(self, shape: DecoderShape, store: Claims) -> None:
        n, at = shape.n_embd, "token_embd_norm"
        self.start(shape)
        self.embedding = store.table("token_embd.weight", n, shape.n_vocab)
        self.kinds = store.vector(_KINDS, n, store.rows(_KINDS)) if store.has(_KINDS) else None
        self.spots = store.vector("position_embd.weight", n, shape.n_places) if shape.n_places else None
        self.norm, self.bias = store.vector(f"{at}.weight", n), store.vector(f"{at}.bias", n)
        ranking.claim(store, n)
        self.layers = [Layer(Scope(store, i), shape) for i in range(shape.n_layers)]

    def record(self, parts: "Parts") -> None:
        """The rows of a step, left in x."""
        table = None if self.spots else parts.rotation()
        self.open(parts)
        parts.place(self.spots, self.kinds)
        parts.norm_rows(self.norm, self.bias)
        for i, w in enumerate(self.layers):
            w.attention.record(parts, parts.plain(*w.attention.inputs), i, table, neox=True)
            parts.norm_rows(w.attn_norm, w.attn_bias)
            n = parts.plain(*w.ffn.inputs)
            if isinstance(w.ffn, Plain):
                w.ffn.record(parts, n, curve="erf")
            else:
                w.ffn.record(parts, n)
            parts.norm_rows(w.ffn_norm, w.ffn_bias)
            parts.layer()
