"""OLMo 2 and 3: what a layer gets is not normalised, what it gives is; queries and keys are, as whole rows.

    x = embed(tokens)
    each layer:   x += norm(o(attend(rope(norm_q(q(x))), rope(norm_k(k(x))), v(x))))
                  x += norm(down(silu(gate(x)) * up(x)))
    logits = output(norm(x))

OLMo team 2025 (arXiv:2501.00656). Rotation turns halves, not neighbours. In OLMo 3 three of four layers see a window of
positions, and only the others stretch them. Not here: experts (olmoe.py).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.models.attention import Attention
from engine.models.claims import Scope
from engine.models.decoder import Decoder
from engine.models.ffn import Gated
from engine.models.keys import Keys
from engine.models.shape import DecoderShape, RopeScaling
from engine.models.windows import windows

if TYPE_CHECKING:
    from engine.models.parts import Parts

PERIOD = 4


@dataclass(frozen=True, slots=True)
class OlmoShape(DecoderShape):
    """`near_base`: the rope's base in layers with a window."""

    near_base: float = 10000.0


def read(keys: Keys) -> OlmoShape:
    base = keys.real("rope.freq_base", 0.0, 1e12, 10000.0)
    near = keys.real("rope.freq_base_swa", 0.0, 1e12, base)
    seen = windows(keys, PERIOD, 0)
    tables = 2 if seen else 1
    return OlmoShape.of(keys, windows=seen, n_rotations=tables, rope_base=base, near_base=near, joins_apart=True)


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attention = Attention.claim(at, s, norms=(s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim))
        self.attn_post_norm = at.vector("post_attention_norm", s.n_embd)
        self.ffn = Gated.claim(at, s.n_embd, s.n_ff)
        self.ffn_post_norm = at.vector("post_ffw_norm", s.n_embd)


class Model(Decoder):
    layer = Layer
    shape: OlmoShape

    def record(self, parts: "Parts") -> None:
        s = self.shape
        far = near = parts.rotation(self.rope_factors)
        if s.windows:
            near = parts.rotation(base=s.near_base, scaling=RopeScaling())
        self.open(parts)
        for i, w in enumerate(self.layers):
            window = s.window(i)
            x, table = parts.plain(*w.attention.inputs), near if window else far
            w.attention.record(parts, x, i, table, neox=True, window=window, post_norm=w.attn_post_norm)
            w.ffn.record(parts, parts.plain(*w.ffn.inputs), post_norm=w.ffn_post_norm)
            parts.layer()
        self.close(parts)
