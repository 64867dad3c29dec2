"""Phi-3 and Phi-4: q, k and v in one matrix, gate and up in another, two ropes to choose from. Not here: experts.

    each layer:   x += o(attend(rope(q(n)), rope(k(n)), v(n)))     n = norm(x)
                  x += down(silu(gate(n)) * up(n))                 n = norm(x)

Abdin et al. 2024 (arXiv:2404.14219); longrope: Ding et al. 2024 (arXiv:2402.13753). Rotation turns halves, of the first
rope_dim values of a head. The long divisors are taken where the context is longer than the one trained first: as with
any stretched rope an answer then depends on the context that was asked for.
"""

from typing import TYPE_CHECKING

from engine.errors import BadModelFile, UnsupportedModel
from engine.gguf.layout import quoted
from engine.models.attention import Attention
from engine.models.claims import Claims, Scope
from engine.models.decoder import Decoder
from engine.models.ffn import Gated
from engine.models.keys import MAX_CTX, Keys
from engine.models.shape import DecoderShape, RopeScaling
from engine.models.windows import windows

if TYPE_CHECKING:
    from engine.models.parts import Parts

_LONG, _SHORT = "rope_factors_long.weight", "rope_factors_short.weight"


def read(keys: Keys) -> DecoderShape:
    own = {} if not _is_long(keys) else {"rope_scaling": _longrope(keys)}
    return DecoderShape.of(keys, windows=windows(keys, 0, 0), **own)


def _is_long(keys: Keys) -> bool:
    there = [name for name in (_LONG, _SHORT) if name in keys.gguf.tensors]
    if len(there) == 1:
        raise BadModelFile(f"the file has {there[0]} and not the other one of {_LONG} and {_SHORT}; get a whole file")
    return bool(there)


def _longrope(keys: Keys) -> RopeScaling:
    kind = keys.text("rope.scaling.type", "longrope")
    if kind not in ("longrope", "su", "none"):
        raise UnsupportedModel(f"{keys.prefix}rope.scaling.type {quoted(kind)} beside {_LONG} is not known")
    keys.neutral("rope.scaling.factor", 1.0, 0.0)
    return RopeScaling(
        "longrope",
        n_ctx_orig=keys.count("rope.scaling.original_context_length", 1, MAX_CTX),
        attn_factor=keys.real("rope.scaling.attn_factor", 0.0, 1e3, 1.0),
    )


class Layer:
    def __init__(self, at: Scope, s: DecoderShape) -> None:
        self.attn_norm = at.vector("attn_norm", s.n_embd)
        self.attention = Attention.claim(at, s, is_fused=True)
        self.ffn_norm = at.vector("ffn_norm", s.n_embd)
        self.ffn = Gated.claim(at, s.n_embd, s.n_ff, is_fused=True)


class Model(Decoder):
    layer = Layer

    def __init__(self, shape: DecoderShape, store: Claims) -> None:
        super().__init__(shape, store)
        self.long = store.floats(_LONG, shape.rope_dim // 2)
        self.short = store.floats(_SHORT, shape.rope_dim // 2)

    def record(self, parts: "Parts") -> None:
        s = self.shape
        factors = self.rope_factors
        if s.rope_scaling.type == "longrope":
            factors = self.long if parts.kv.n_ctx > s.rope_scaling.n_ctx_orig else self.short
        table = parts.rotation(factors)
        self.open(parts)
        for i, w in enumerate(self.layers):
            n = parts.norm(w.attn_norm, *w.attention.inputs)
            w.attention.record(parts, n, i, table, neox=True, window=s.window(i))
            w.ffn.record(parts, parts.norm(w.ffn_norm, *w.ffn.inputs))
            parts.layer()
        self.close(parts)
