"""Qwen3 with experts: queries and keys normalised head by head, a mixture in every layer. Not here: shared experts.

    x = embed(tokens)
    each layer:   x += o(attend(rope(norm_q(q(n))), rope(norm_k(k(n))), v(n)))                       n = norm(x)
                  x += sum of p_e * down_e(silu(gate_e(n)) * up_e(n)) over the n_used likeliest e    n = norm(x)
                       p = softmax(router(n)), the chosen ones divided by their sum
    logits = output(norm(x))

Qwen team 2025 (arXiv:2505.09388). Rotation turns halves, not neighbours.
"""

from dataclasses import dataclass

from engine.kernels.places import Places
from engine.kernels.step import N_OUT
from engine.models.mixture import ExpertLayer, Mixture
from engine.models.parts import Parts, rotation
from engine.models.shape import DecoderShape
from engine.weights.experts import ExpertCache
from engine.weights.store import Store
from engine.weights.tensor import Matrix, Vector


@dataclass(frozen=True)
class Layer:
    attn_norm: Vector
    q: Matrix
    k: Matrix
    v: Matrix
    o: Matrix
    q_norm: Vector
    k_norm: Vector
    ffn_norm: Vector
    experts: ExpertLayer

    @classmethod
    def claim(cls, store: Store, s: DecoderShape, i: int) -> "Layer":
        def name(part: str) -> str:
            return f"blk.{i}.{part}.weight"

        n_q, n_kv = s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim
        return cls(
            attn_norm=store.vector(name("attn_norm"), s.n_embd),
            q=store.matrix(name("attn_q"), s.n_embd, n_q),
            k=store.matrix(name("attn_k"), s.n_embd, n_kv),
            v=store.matrix(name("attn_v"), s.n_embd, n_kv),
            o=store.matrix(name("attn_output"), n_q, s.n_embd),
            q_norm=store.vector(name("attn_q_norm"), s.head_dim),
            k_norm=store.vector(name("attn_k_norm"), s.head_dim),
            ffn_norm=store.vector(name("ffn_norm"), s.n_embd),
            experts=ExpertLayer(
                router=store.matrix(name("ffn_gate_inp"), s.n_embd, s.n_experts),
                gate=store.experts(name("ffn_gate_exps"), s.n_embd, s.n_ff_exp, s.n_experts),
                up=store.experts(name("ffn_up_exps"), s.n_embd, s.n_ff_exp, s.n_experts),
                down=store.experts(name("ffn_down_exps"), s.n_ff_exp, s.n_embd, s.n_experts),
            ),
        )


class Model:
    """Claims its tensors by name; `record` writes the forward pass down once they are placed.

    `places` says where each expert lies; recording fills it for experts that lie in the file's order, a `cache` that is
    set before as it reads them.
    """

    def __init__(self, shape: DecoderShape, store: Store) -> None:
        self.shape = shape
        self.embedding = store.table("token_embd.weight", shape.n_embd, shape.n_vocab)
        self.layers = [Layer.claim(store, shape, i) for i in range(shape.n_layers)]
        self.output_norm = store.vector("output_norm.weight", shape.n_embd)
        self.output = (
            store.tied(self.embedding) if shape.tied else store.matrix("output.weight", shape.n_embd, shape.n_vocab)
        )
        self.rope_factors = store.floats("rope_freqs.weight")
        self.places = Places(shape.n_layers, shape.n_experts)
        self.cache: ExpertCache | None = None

    def record(self, parts: Parts) -> None:
        """The forward pass of a step, up to the tokens of its output rows."""
        s = self.shape
        n_q, n_kv = s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim
        table = parts.keep(rotation(s, parts.kv.n_ctx, self.rope_factors))
        mixtures = [w.experts for w in self.layers]
        acts = [m for w in self.layers for m in (w.q, w.k, w.v)]
        acts += [m for w in mixtures for m in (w.router, w.gate.whole, w.up.whole)]
        normed = parts.act(s.n_embd, *acts, self.output)
        attended = parts.act(n_q, *(w.o for w in self.layers))
        mixture = Mixture(parts, self.places, mixtures, s.n_used, self.cache)
        parts.embed(self.embedding)
        for i, w in enumerate(self.layers):
            parts.norm(w.attn_norm, normed)
            for matrix, column in ((w.q, 0), (w.k, n_q), (w.v, n_q + n_kv)):
                parts.matmul(matrix, normed, parts.qkv, parts.ld_qkv, column)
            parts.program.barrier()
            parts.attention(i, table, attended, neox=True, head_norms=(w.q_norm, w.k_norm))
            parts.matmul(w.o, attended, parts.x, s.n_embd, add=True)
            parts.program.barrier()
            parts.norm(w.ffn_norm, normed)
            mixture.record(i, w.experts, normed, is_share=True)
            parts.program.layer()
            parts.program.barrier()
        parts.norm(self.output_norm, normed, rows=N_OUT)
        parts.matmul(self.output, normed, parts.logits, parts.ld_logits, rows=N_OUT)
        parts.program.barrier()
        parts.sample()
