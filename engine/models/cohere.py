"""Command R and Command R7B, Aya: attention and feed-forward side by side on one norm. Not here: Command R+.

    each layer:   n = norm(x);   x += o(attend(rope(q(n)), rope(k(n)), v(n))) + down(silu(gate(n)) * up(n))
    logits = s * output(norm(x)), the output is the embedding

Norms are centred and have no bias. Command R7B (cohere2; arXiv:2504.00698): three of four layers see a window of
positions; the others see all and do not turn. Rotation turns neighbours.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.models.attention import Attention
from engine.models.claims import Scope
from engine.models.decoder import Decoder
from engine.models.ffn import Gated
from engine.models.keys import Keys
from engine.models.shape import DecoderShape
from engine.models.windows import windows

if TYPE_CHECKING:
    from engine.models.parts import Parts


@dataclass(frozen=True, slots=True)
class CohereShape(DecoderShape):
    logit_scale: float = 1.0


def read(keys: Keys) -> CohereShape:
    return CohereShape.of(
        keys,
        eps=keys.real("attention.layer_norm_epsilon", 0.0, 1.0),
        windows=windows(keys, 4) if keys.architecture == "cohere2" else (),
        logit_scale=keys.real("logit_scale", 0.0, 1e3),
    )


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.norm = at.vector("attn_norm", s.n_embd)
        self.attention = Attention.claim(at, s)
        self.ffn = Gated.claim(at, s.n_embd, s.n_ff)


class Model(Decoder):
    layer = Layer
    has_layer_norm = True
    shape: CohereShape

    def record(self, parts: "Parts") -> None:
        s = self.shape
        table = parts.rotation(self.rope_factors)
        self.open(parts)
        for i, w in enumerate(self.layers):
            window = s.windows[i] if s.windows else 0
            n = parts.norm(w.norm, *w.attention.inputs, *w.ffn.inputs, is_centred=True)
            w.attention.record(parts, n, i, table if window or not s.windows else None, window=window)
            w.ffn.record(parts, n)
            parts.layer()
        self.close(parts, is_centred=True, scale=s.logit_scale)
