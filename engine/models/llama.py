"""The llama family: Llama 1 to 3.x, Mistral, SmolLM and whatever else says `llama` in its file. Not here: experts.

    x = embed(tokens)
    each layer:   x += o(attend(rope(q(n)), rope(k(n)), v(n)))   with n = norm(x)
                  x += down(silu(gate(n)) * up(n))               with n = norm(x)
    logits = output(norm(x))

Touvron et al. 2023 (arXiv:2302.13971); grouped queries: Ainslie et al. 2023 (arXiv:2305.13245). GGUF files of this
family have q and k permuted so that rotation turns neighbours, not halves.
"""

from dataclasses import dataclass

from engine.kernels.program import Buffer
from engine.kernels.step import N_OUT
from engine.models.parts import Parts, rotation
from engine.models.shape import DecoderShape
from engine.weights.store import Store
from engine.weights.tensor import Matrix, Vector


@dataclass(frozen=True)
class Layer:
    attn_norm: Vector
    q: Matrix
    k: Matrix
    v: Matrix
    o: Matrix
    ffn_norm: Vector
    gate: Matrix
    up: Matrix
    down: Matrix

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
            ffn_norm=store.vector(name("ffn_norm"), s.n_embd),
            gate=store.matrix(name("ffn_gate"), s.n_embd, s.n_ff),
            up=store.matrix(name("ffn_up"), s.n_embd, s.n_ff),
            down=store.matrix(name("ffn_down"), s.n_ff, s.n_embd),
        )


class Model:
    """Claims its tensors by name; `record` writes the forward pass down once they are placed."""

    def __init__(self, shape: DecoderShape, store: Store) -> None:
        self.shape = shape
        self.embedding = store.table("token_embd.weight", shape.n_embd, shape.n_vocab)
        self.layers = [Layer.claim(store, shape, i) for i in range(shape.n_layers)]
        self.output_norm = store.vector("output_norm.weight", shape.n_embd)
        self.output = (
            store.tied(self.embedding) if shape.tied else store.matrix("output.weight", shape.n_embd, shape.n_vocab)
        )
        self.rope_factors = store.floats("rope_freqs.weight")

    def record(self, parts: Parts) -> None:
        """The forward pass of a step, up to the tokens of its output rows."""
        s = self.shape
        n_q, n_kv = s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim
        table = parts.keep(rotation(s, parts.kv.n_ctx, self.rope_factors))
        acts = [m for w in self.layers for m in (w.q, w.k, w.v, w.gate, w.up)]
        normed = parts.act(s.n_embd, *acts, self.output)
        attended = parts.act(n_q, *(w.o for w in self.layers))
        hidden = parts.keep(Buffer(parts.max_rows * s.n_ff * 4))
        gated = parts.act(s.n_ff, *(w.down for w in self.layers))
        parts.embed(self.embedding)
        for i, w in enumerate(self.layers):
            parts.norm(w.attn_norm, normed)
            for matrix, column in ((w.q, 0), (w.k, n_q), (w.v, n_q + n_kv)):
                parts.matmul(matrix, normed, parts.qkv, parts.ld_qkv, column)
            parts.program.barrier()
            parts.attention(i, table, attended)
            parts.matmul(w.o, attended, parts.x, s.n_embd, add=True)
            parts.program.barrier()
            parts.norm(w.ffn_norm, normed)
            parts.swiglu(w.gate, w.up, normed, hidden, gated)
            parts.matmul(w.down, gated, parts.x, s.n_embd, add=True)
            parts.program.layer()
            parts.program.barrier()
        parts.norm(self.output_norm, normed, rows=N_OUT)
        parts.matmul(self.output, normed, parts.logits, parts.ld_logits, rows=N_OUT)
        parts.program.barrier()
        parts.sample()
