"""EXAONE 4: what a layer gives is normalised, not what it gets; layers that see all do not turn. Not here: experts.

    each layer:   x += norm(o(attend(rope(norm_q(q(x))), rope(norm_k(k(x))), v(x))))      q and k normalised by head
                  x += norm(down(silu(gate(x)) * up(x)))

LG AI Research 2025 (arXiv:2507.11407). Rotation turns halves. In the large one three of four layers see a window of
positions and the others do not turn; the small one has no windows and turns in all.
"""

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


def read(keys: Keys) -> DecoderShape:
    return DecoderShape.of(keys, windows=windows(keys, 4, 0), joins_apart=True)


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attention = Attention.claim(at, s, norms=(s.head_dim, s.head_dim))
        self.attn_post_norm = at.vector("post_attention_norm", s.n_embd)
        self.ffn = Gated.claim(at, s.n_embd, s.n_ff)
        self.ffn_post_norm = at.vector("post_ffw_norm", s.n_embd)


class Model(Decoder):
    layer = Layer

    def record(self, parts: "Parts") -> None:
        s = self.shape
        table = parts.rotation(self.rope_factors)
        self.open(parts)
        for i, w in enumerate(self.layers):
            window = s.windows[i] if s.windows else 0
            w.attention.record(
                parts, parts.plain(*w.attention.inputs), i, table if window or not s.windows else None, neox=True,
                window=window, post_norm=w.attn_post_norm,
            )  # fmt: skip
            w.ffn.record(parts, parts.plain(*w.ffn.inputs), post_norm=w.ffn_post_norm)
            parts.layer()
        self.close(parts)
