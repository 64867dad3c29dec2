"""DeepSeek V2 and V3 (Kimi K2, GLM-4.7-Flash ...): attention over compressed rows, experts beside one for all rows.

    x = embed(tokens)
    each layer:   x += latent attention of n (latent.py)                                            n = norm(x)
                  x += shared(n) + sum of p_e * expert_e(n) over the chosen experts                 n = norm(x)
                       V2: p = softmax(router(n)) * factor, the n_used greatest
                       V3: s = sigmoid(router(n)), the greatest s + b of the best groups;
                           p = s / sum of the chosen s * factor
      or          x += down(silu(gate(n)) * up(n))   in the first n_dense layers
    logits = output(norm(x))

arXiv:2405.04434, arXiv:2412.19437. Neighbours turn. Not here: layers that guess further tokens (nextn).
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import UnsupportedModel
from engine.models.claims import Scope
from engine.models.decoder import Decoder
from engine.models.ffn import feed, feed_forward, shared_expert
from engine.models.keys import MAX_CTX, Keys
from engine.models.latent import Latent, read_latent
from engine.models.routing import SIGMOID, SOFTMAX
from engine.models.shape import DecoderShape, rope_scaling, shared_mixture

if TYPE_CHECKING:
    from engine.models.parts import Parts


def read(keys: Keys) -> DecoderShape:
    scaling = rope_scaling(keys, keys.count("context_length", 1, MAX_CTX))
    log_multiplier = keys.real("rope.scaling.yarn_log_multiplier", -1.0, 10.0, 0.0)
    if scaling.type == "yarn":
        if log_multiplier <= 0.0 or scaling.attn_factor != 1.0:
            raise UnsupportedModel(
                f"{keys.prefix}rope.scaling.type is yarn without a yarn_log_multiplier above 0, or with an attn_factor:"
                " how its vectors lengthen cannot be told; get a newer file of the model"
            )
        # The lengthening of rotated and plain parts alike goes into the scale of scores.
        scaling = replace(scaling, attn_factor=1.0 / (1.0 + 0.1 * math.log(scaling.factor)))
    sizes = read_latent(keys, (1.0 + log_multiplier * math.log(scaling.factor)) ** 2)
    # GLM-4.7-Flash's files do not say how its router's scores are made.
    has_favour = any(name.endswith("exp_probs_b.bias") for name in keys.gguf.tensors)
    return DecoderShape.of(
        keys, **shared_mixture(keys, SIGMOID if has_favour else SOFTMAX), latent=sizes, n_kv_heads=sizes.n_kv_heads,
        head_dim=sizes.k_dim, v_dim=sizes.v_dim_kept, rope_dim=sizes.rope_dim, rope_scaling=scaling,
    )  # fmt: skip


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attn_norm = at.vector("attn_norm", s.n_embd)
        self.attention = Latent.claim(at, s)
        self.ffn_norm = at.vector("ffn_norm", s.n_embd)
        self.ffn = feed_forward(at, s, has_favour=s.routing.is_sigmoid and at.has("exp_probs_b", "bias"))
        self.shared = shared_expert(at, s)


class Model(Decoder):
    layer = Layer

    def record(self, parts: "Parts") -> None:
        table = parts.rotation()
        self.open(parts)
        for i, w in enumerate(self.layers):
            w.attention.record(parts, parts.norm(w.attn_norm, *w.attention.inputs), i, table)
            feed(parts, w.ffn_norm, w.shared, w.ffn)
            parts.layer()
        self.close(parts)
