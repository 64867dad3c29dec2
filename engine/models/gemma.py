"""Gemma 1 to 3, text: gelu, scaled embeddings, from 2 on norms around blocks and windows. Not here: 3n, pictures.

    x = sqrt(n_embd) * embed(tokens)
    each layer:   x += norm(o(attend(rope(q(n)), rope(k(n)), v(n))))     n = norm(x)
                  x += norm(down(gelu(gate(n)) * up(n)))                 n = norm(x)
    logits = output(norm(x))

Gemma 1 (arXiv:2403.08295): without the norms behind, all layers see all positions.
Gemma 2 (arXiv:2408.00118): scores and logits are kept under a cap; every second layer sees all positions.
Gemma 3 (arXiv:2503.19786): queries and keys are normalised by head; every sixth layer sees all positions, the others
turn by a base of their own and are not stretched.

Rotation turns halves. GGUF files hold norm weights with the 1 already added.
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

# The largest of both, known by its layers alone, divides scores by the root of n_embd / n_heads, not of a head's width.
_LARGEST = {"gemma2": 46, "gemma3": 62}
_OFF = -1e-30  # a cap may be 0


@dataclass(frozen=True, slots=True)
class GemmaShape(DecoderShape):
    """`local_base`: of the rope in layers with a window, 0: the same as in all."""

    score_scale: float = 0.0
    score_cap: float = 0.0
    logit_cap: float = 0.0
    local_base: float = 0.0


def read(keys: Keys) -> DecoderShape:
    common = DecoderShape.of(keys)
    if keys.architecture == "gemma":
        return GemmaShape.of(keys, score_scale=common.head_dim**-0.5)
    is_second = keys.architecture == "gemma2"
    width = common.n_embd / common.n_heads if common.n_layers == _LARGEST[keys.architecture] else common.head_dim
    return GemmaShape.of(
        keys,
        windows=windows(keys, 2, 4096) if is_second else windows(keys, 6),
        joins_apart=True,
        n_rotations=1 if is_second else 2,
        score_scale=keys.real("attention.scale", _OFF, 1e3, 0.0) or width**-0.5,
        score_cap=keys.real("attn_logit_softcapping", _OFF, 1e6, 50.0) if is_second else 0.0,
        logit_cap=keys.real("final_logit_softcapping", _OFF, 1e6, 30.0 if is_second else 0.0),
        local_base=0.0 if is_second else keys.real("rope.freq_base_swa", 0.0, 1e12, 10000.0),
    )


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        norms = (s.head_dim, s.head_dim) if s.architecture == "gemma3" else None
        self.attn_norm = at.vector("attn_norm", s.n_embd)
        self.attention = Attention.claim(at, s, norms=norms)
        self.post_attn_norm = at.vector("post_attention_norm", s.n_embd) if s.joins_apart else None
        self.ffn_norm = at.vector("ffn_norm", s.n_embd)
        self.ffn = Gated.claim(at, s.n_embd, s.n_ff)
        self.post_ffn_norm = at.vector("post_ffw_norm", s.n_embd) if s.joins_apart else None


class Model(Decoder):
    layer = Layer

    def record(self, parts: "Parts") -> None:
        s = self.shape
        assert isinstance(s, GemmaShape)
        table = near = parts.rotation(self.rope_factors)
        if s.local_base:
            near = parts.rotation(base=s.local_base, scaling=RopeScaling())
        self.open(parts, scale=s.n_embd**0.5)
        for i, w in enumerate(self.layers):
            window = s.window(i)
            n = parts.norm(w.attn_norm, *w.attention.inputs)
            w.attention.record(
                parts, n, i, near if window else table, neox=True, scale=s.score_scale, window=window,
                soft_cap=s.score_cap, post_norm=w.post_attn_norm,
            )  # fmt: skip
            n = parts.norm(w.ffn_norm, *w.ffn.inputs)
            w.ffn.record(parts, n, curve="gelu", post_norm=w.post_ffn_norm)
            parts.layer()
        self.close(parts, soft_cap=s.logit_cap)
