"""What all decoders share: embedding, layers, last norm, output. Not here: what a layer is made of.

    x = embed(tokens)        open
    x = layer(x) for each    the family's `record`
    output(norm(x))          close
"""

from typing import TYPE_CHECKING, Any, ClassVar

from engine.kernels.step import N_OUT
from engine.models.claims import Claims, Scope
from engine.models.ffn import ExpertLayer
from engine.models.shape import ROPE_FREQS, DecoderShape

if TYPE_CHECKING:
    from engine.kernels.places import Places
    from engine.models.parts import Parts
    from engine.weights.experts import ExpertCache
    from engine.weights.tensor import Vector


class Decoder:
    """Claims its tensors; `record` writes the forward pass down once they are placed.

    `mixtures` are the experts of those layers that have some, in order. Where each expert lies stands in `places`:
    recording fills it for experts that lie in the file's order, a `cache` that is set before as it reads them.
    """

    layer: ClassVar[type[Any]]
    """Of one layer: made of its claims and the shape, with its experts, if any, as `ffn`."""
    is_neox: ClassVar[bool] = True
    """Whether rotation turns the halves of a head, not neighbours."""
    has_layer_norm: ClassVar[bool] = False
    """Whether the last norm is one that centres."""

    def __init__(self, shape: DecoderShape, store: Claims) -> None:
        self.start(shape)
        self.embedding = store.table("token_embd.weight", shape.n_embd, shape.n_vocab)
        self.layers = [self.layer(Scope(store, i), shape) for i in range(shape.n_layers)]
        for i in range(shape.n_layers, shape.n_layers + shape.n_skipped):
            Scope(store, i).skip()
        self.output_norm = store.vector("output_norm.weight", shape.n_embd)
        self.output = (
            store.tied(self.embedding) if shape.tied else store.matrix("output.weight", shape.n_embd, shape.n_vocab)
        )
        self.rope_factors = store.floats(ROPE_FREQS, shape.rope_dim // 2)
        self.mixtures += [ffn for ffn in (layer.ffn for layer in self.layers) if isinstance(ffn, ExpertLayer)]

    def start(self, shape: DecoderShape) -> None:
        """What a family that claims everything itself calls instead."""
        self.shape = shape
        self.mixtures: list[ExpertLayer] = []
        self.cache: ExpertCache | None = None
        self._expert_places: Places | None = None

    @property
    def places(self) -> "Places":
        from engine.kernels.places import Places

        if self._expert_places is None:
            self._expert_places = Places(len(self.mixtures), self.shape.n_experts)
        return self._expert_places

    def record(self, parts: "Parts") -> None:
        """The forward pass of a step, up to the tokens of its output rows: in each layer x += attention(norm(x)) and
        x += ffn(norm(x)). A family that does otherwise has its own."""
        table = parts.rotation(self.rope_factors)
        self.open(parts)
        for i, w in enumerate(self.layers):
            n = parts.norm(w.attn_norm, *w.attention.inputs)
            w.attention.record(parts, n, i, table, neox=self.is_neox, window=self.shape.window(i))
            w.ffn.record(parts, parts.norm(w.ffn_norm, *w.ffn.inputs))
            parts.layer()
        self.close(parts)

    def open(self, parts: "Parts", scale: float = 0.0) -> None:
        """x = embed(tokens), times `scale` (0: as it is)."""
        if self.mixtures:
            from engine.models.mixture import Mixture

            parts.mixture = Mixture(parts, self.places, self.mixtures, self.shape.n_used, self.cache)
        parts.embed(self.embedding, scale)

    def close(
        self, parts: "Parts", *, norm_bias: "Vector | None" = None, is_centred: bool = False, scale: float = 1.0,
        soft_cap: float = 0.0,
    ) -> None:  # fmt: skip
        """Logits of the output rows, times `scale`, under `soft_cap` (0: none); a token from each with a sampler."""
        n = parts.norm(self.output_norm, self.output, bias=norm_bias, is_centred=is_centred, rows=N_OUT)
        parts.matmul(self.output, n, parts.logits, parts.ld_logits, rows=N_OUT)
        parts.program.barrier()
        if scale != 1.0 or soft_cap:
            parts.soften(scale, soft_cap)
        parts.sample()
