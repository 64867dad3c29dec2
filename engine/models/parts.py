"""Records the ops that decoder families share, with their buffers. Not here: which of them a family uses and when.

A part takes sizes and matrices, never a family's name; one that would need a flag belongs into the family's file.
Every extent that an op touches is asserted here, once, at load.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.cache.kv import KvCache
from engine.kernels import attention, curves, rope, sample
from engine.kernels.act import FORMATS, act_bytes, activate
from engine.kernels.embed import embed, embed_read
from engine.kernels.gated import HIDDEN, geglu, reglu2, scale_rows, swiglu
from engine.kernels.hidden import hidden as bent
from engine.kernels.kv import store_k, store_v
from engine.kernels.logits import softened
from engine.kernels.matmul import matmul
from engine.kernels.matmul import scratch_bytes as product_bytes
from engine.kernels.merge import merged
from engine.kernels.norm import layer_norm, layer_rows, rms_columns, rms_norm
from engine.kernels.placed import placed
from engine.kernels.program import Buffer, Program, Work
from engine.kernels.residual import joined
from engine.kernels.ring import release, wait_read
from engine.kernels.step import N_ROWS, PAGE, REPLICATE
from engine.models.shape import DecoderShape, RopeScaling
from engine.weights.tensor import Matrix, Span, Table, Vector

if TYPE_CHECKING:
    from engine.models.mixture import Mixture

CHUNK = 16 << 10  # bytes of weights worth handing out: 0.7 us of reading
CURVES = {"silu": curves.SILU, "gelu": curves.GELU, "relu2": curves.RELU2, "erf": curves.ERF}
GATED = {"silu": swiglu, "gelu": geglu, "relu2": reglu2}


@dataclass(frozen=True)
class Act:
    """Activations of width k in the formats their readers want; `copies` bytes lie between two threads' own."""

    k: int
    copies: int
    plain: Buffer | None
    blocks: Buffer | None

    def of(self, matrix: Matrix) -> int:
        """The address of the format `matrix` multiplies with."""
        buffer = self.plain if matrix.act == "f32" else self.blocks
        assert buffer is not None and matrix.k == self.k, (matrix.name, matrix.k, self.k)
        return buffer.address

    @property
    def addresses(self) -> tuple[int, int]:
        return (self.plain.address if self.plain else 0, self.blocks.address if self.blocks else 0)


class Parts:
    """A program being recorded, for steps of up to max_rows rows and max_out rows of logits on `threads` threads."""

    def __init__(
        self, shape: DecoderShape, matrices: list[Matrix], kv: KvCache, max_rows: int, max_out: int, threads: int
    ) -> None:
        self.shape, self.kv, self.program = shape, kv, Program()
        self.max_rows, self.max_out, self.threads = max_rows, max_out, threads
        self.mixture: Mixture | None = None
        self._kept: list[Buffer] = []
        self._shared: dict[tuple[str, int, str], Buffer] = {}
        self._tables: dict[tuple[object, ...], Buffer] = {}
        self.x = Buffer(max_rows * shape.n_embd * 4)
        self.ld_qkv = shape.n_heads * shape.head_dim + shape.n_kv_heads * (shape.head_dim + shape.v_dim)
        self.qkv = Buffer(max_rows * self.ld_qkv * 4)
        self.ld_logits = -(-shape.n_vocab // 8) * 8
        self.logits = Buffer(max_out * self.ld_logits * 4)
        self.max_tiles = kv.n_ctx // PAGE
        self.partials = Buffer(attention.parts_bytes(max_rows, self.max_tiles, shape.n_heads, shape.v_dim))
        self.scratch_bytes = self._scratch(matrices)
        self.scratch = Buffer(self.scratch_bytes * threads)
        self._attention_scratch = Buffer(
            attention.scratch_bytes(shape.n_heads, shape.n_kv_heads, shape.head_dim, shape.v_dim) * threads
        )

    def _scratch(self, matrices: list[Matrix]) -> int:
        """The most any op needs for one thread."""
        s = self.shape
        product = max(product_bytes(m.panel_bytes) for m in matrices)
        hidden = 2 * self.max_rows * HIDDEN * 4 + product
        results = s.latent.n_heads * s.latent.v_dim if s.latent else 0
        rows = 4 * max(s.n_embd, s.n_heads * max(s.head_dim, s.v_dim), s.n_ff, s.n_ff_shared, results)
        return -(-max(hidden, rows) // 64) * 64

    def act(self, role: str, k: int, *readers: Matrix | Vector) -> Act:
        """Room for activations of width k in every format that the readers multiply with. Acts of one role and width
        share their room: each is read to its end before the next one is written."""
        formats = {m.act for m in readers}
        copies = -(-max(act_bytes(f, k, REPLICATE) for f in FORMATS) // 64) * 64
        found = {f: self.room(role, k, f, max(act_bytes(f, k, self.max_rows), copies * self.threads)) for f in formats}
        return Act(k, copies, found.get("f32"), found.get("q32"))

    def room(self, role: str, k: int, what: str, n_bytes: int) -> Buffer:
        """A buffer that all who ask for the same share, one after the other."""
        if (role, k, what) not in self._shared:
            self._shared[role, k, what] = Buffer(n_bytes)
        return self._shared[role, k, what]

    def keep(self, buffer: Buffer) -> Buffer:
        """Hold a buffer that an op names for as long as the program lives."""
        self._kept.append(buffer)
        return buffer

    def rotation(
        self, factors: np.ndarray | None = None, *, dim: int | None = None, base: float | None = None,
        scaling: RopeScaling | None = None,
    ) -> Buffer:  # fmt: skip
        """The table of a rope where kernels can read it, float32 (n_ctx, dim): the shape's, but for what is given;
        `factors` (dim / 2,) divide the angles. One table for all who ask for the same."""
        s = self.shape
        dim, base, scaling = dim or s.rope_dim, base or s.rope_base, scaling or s.rope_scaling
        key = dim, base, scaling, None if factors is None else factors.tobytes()
        if key not in self._tables:
            table = rope.rope_table(self.kv.n_ctx, dim, base, scaling, factors)
            self._tables[key] = Buffer(table.nbytes)
            self._tables[key].view(np.float32)[:] = table.reshape(-1)
        return self._tables[key]

    def layer(self) -> None:
        """One layer more is recorded."""
        self.program.layer()
        self.program.barrier()

    def embed(self, table: Table, scale: float = 0.0) -> None:
        """x = rows of the table, times `scale` (0: as they are)."""
        assert table.k == self.shape.n_embd and self.x.n_bytes >= self.max_rows * table.k * 4
        assert table.row_bytes <= self.scratch_bytes, table.row_bytes
        work = Work(table.name, row_bytes=table.row_bytes)
        row = (table.row_bytes, table.blocks, table.unpack, self.x.address, table.k * 4)
        if table.ring:
            scratch = (self.scratch.address, self.scratch_bytes, table.ring)
            self.program.add(embed_read, table.fd, table.offset, *row, *scratch, float(scale), work=work)
        else:
            self.program.add(embed, table.address, *row, float(scale), work=work)
        self.program.barrier()

    def norm(
        self, weight: Vector, *readers: Matrix | Vector, bias: Vector | None = None, is_centred: bool = False,
        rows: int = N_ROWS,
    ) -> Act:  # fmt: skip
        """RMS norm of x (of the rows whose logits are wanted, with N_OUT) for `readers`; with a bias, or if it
        `is_centred`, a layer norm."""
        k, out = self.shape.n_embd, self.act("normed", self.shape.n_embd, *readers)
        assert weight.k == k and k % 8 == 0 and (bias is None or bias.k == k), (weight.name, weight.k, k)
        self.program.add(
            layer_norm if bias or is_centred else rms_norm, self.x.address, k * 4, weight.address, k,
            float(self.shape.eps), *out.addresses, out.copies, self.scratch.address, self.scratch_bytes, rows,
            bias.address if bias else 0, counter=True, work=Work(weight.name, n_bytes=weight.k * 4, rows=rows),
        )  # fmt: skip
        self.program.tile_barrier()
        return out

    def norm_rows(self, weight: Vector, bias: Vector) -> None:
        """x = layer norm of x; a barrier before, one after."""
        k = self.shape.n_embd
        assert weight.k == bias.k == k and k % 8 == 0, (weight.name, weight.k, k)
        self.program.barrier()
        self.program.add(
            layer_rows, self.x.address, k * 4, weight.address, k, float(self.shape.eps), bias.address, counter=True,
            work=Work(weight.name, n_bytes=k * 8),
        )  # fmt: skip
        self.program.barrier()

    def place(self, positions: Vector | None, kind: Vector | None) -> None:
        """x += the row of each row's position + the first row of `kind`; a barrier must follow. Nobody may read a text
        of more ids than there are rows of positions."""
        k = self.shape.n_embd
        assert k % 8 == 0 and all(v is None or (v.k >= k and v.k % k == 0) for v in (positions, kind)), k
        at = [v.address if v else 0 for v in (positions, kind)]
        self.program.add(placed, self.x.address, k, *at, counter=True)

    def norm_columns(self, weight: Vector, column: int) -> None:
        """RMS norm, in place, of as many columns of qkv as there are weights."""
        k = weight.k
        assert k % 8 == 0 and column + k <= self.ld_qkv, (weight.name, column, k, self.ld_qkv)
        self.program.add(
            rms_columns, self.qkv.address + column * 4, self.ld_qkv * 4, weight.address, k, float(self.shape.eps),
            counter=True, work=Work(weight.name, n_bytes=k * 4),
        )  # fmt: skip

    def add_product(
        self, m: Matrix, act: Act, *, bias: Vector | None = None, post_norm: Vector | None = None
    ) -> None:
        """x += act m^T (+ bias), an RMS norm before that with a `post_norm`; a barrier must follow."""
        k = self.shape.n_embd
        if post_norm is None:
            self.matmul(m, act, self.x, k, add=True, bias=bias)
            return
        assert post_norm.k == k, (m.name, k)
        y = self.room("joining", k, "floats", self.max_rows * k * 4)
        self.matmul(m, act, y, k, bias=bias)
        self.program.barrier()
        self.program.add(
            joined, self.x.address, y.address, k, post_norm.address, float(self.shape.eps), self.scratch.address,
            self.scratch_bytes, counter=True,
        )  # fmt: skip

    def plain(self, *readers: Matrix) -> Act:
        """x as it is, for `readers`."""
        return self.activated("normed", self.x, self.shape.n_embd, *readers)

    def activated(
        self, role: str, x: Buffer, k: int, *readers: Matrix, norm: Vector | None = None, curve: int = curves.PLAIN
    ) -> Act:
        """The rows of k floats at x for `readers`, bent and normalised where that is asked for."""
        out = self.act(role, k, *readers)
        row = (x.address, k, *out.addresses, out.copies, self.scratch.address, self.scratch_bytes)
        assert self.max_rows * k * 4 <= x.n_bytes and k * 4 <= self.scratch_bytes, (role, k)
        assert norm is None or norm.k == k, (k, norm)
        if norm or curve:
            address = norm.address if norm else 0
            self.program.add(bent, *row, address, float(self.shape.eps), curve, counter=True)
        else:
            self.program.add(activate, *row, counter=True)
        self.program.tile_barrier()
        return out

    def matmul(self, m: Matrix, act: Act, y: Buffer, ldy: int, column: int = 0, *, add: bool = False,
               bias: Vector | None = None, rows: int = N_ROWS) -> None:  # fmt: skip
        """y[:, column : column + m.n] (+)= act m^T (+ bias); ldy in floats."""
        assert bias is None or bias.k == m.n == m.n_panels * 8, (m.name, m.n, bias)
        most = self.max_rows if rows == N_ROWS else self.max_out
        assert column + m.n_panels * 8 <= ldy and most * ldy * 4 <= y.n_bytes, (m.name, column, m.n, ldy, y.n_bytes)
        for span in m.spans:
            n_bytes, at = span.n_panels * m.panel_bytes, y.address + (column + span.first * 8) * 4
            with self.reached(span, m) as address:
                self.program.add(
                    matmul, address, span.body, act.of(m), act.copies, m.blocks, at, ldy * 4, span.n_panels,
                    int(add), self.scratch.address, self.scratch_bytes, rows, CHUNK // m.panel_bytes,
                    bias.address + span.first * 32 if bias else 0, counter=True,
                    work=Work(m.name, n_bytes=n_bytes, row_macs=span.n_panels * 8 * m.k, rows=rows),
                )  # fmt: skip

    @contextmanager
    def reached(self, span: Span, m: Matrix) -> Iterator[int]:
        """The address of the span's panels while the op that is recorded inside runs."""
        if span.visit is None:
            yield span.address
            return
        visit = span.visit()
        self.program.add(wait_read, visit.ring, visit.request, work=Work(m.name))
        yield visit.address
        self.program.add(release, visit.ring, visit.request, visit.follower, work=Work(m.name))

    def gated(
        self, gate: Matrix, up: Matrix, act: Act, *readers: Matrix, curve: str = "silu", norm: Vector | None = None,
        share: Vector | None = None,
    ) -> Act:  # fmt: skip
        """curve(gate act) * (up act) for `readers`, after an RMS norm where one is given, times sigmoid(share . act)
        where there is a `share`."""
        hidden = self.room("hidden", gate.n, "floats", self.max_rows * gate.n * 4)
        assert gate.n == up.n and gate.n % 8 == 0 and not gate.tail and not up.tail, (gate.name, gate.n, up.n)
        for g, u in zip(gate.spans, up.spans, strict=True):
            assert (g.first, g.n_panels) == (u.first, u.n_panels), (gate.name, g, u)
            n_bytes = g.n_panels * (gate.panel_bytes + up.panel_bytes)
            with self.reached(g, gate) as gate_at, self.reached(u, up) as up_at:
                self.program.add(
                    GATED[curve], gate_at, g.body, act.of(gate), gate.blocks, up_at, u.body, act.of(up), up.blocks,
                    act.copies, g.n_panels * 8, hidden.address + g.first * 32, self.scratch.address,
                    self.scratch_bytes, gate.n, counter=True,
                    work=Work(
                        f"{gate.name}+{up.name}", n_bytes=n_bytes, row_macs=2 * g.n_panels * 8 * gate.k,
                    ),
                )  # fmt: skip
        self.program.barrier()
        if share:
            assert act.plain is not None and share.k == act.k and gate.n % 8 == act.k % 8 == 0, (share.name, act.k)
            self.program.add(
                scale_rows, hidden.address, gate.n, share.address, act.plain.address, act.copies, act.k, counter=True,
                work=Work(share.name, n_bytes=share.k * 4),
            )  # fmt: skip
            self.program.barrier()
        return self.activated("gated", hidden, gate.n, *readers, norm=norm)

    def curved(self, up: Matrix, act: Act, *readers: Matrix, curve: str, bias: Vector | None = None) -> Act:
        """curve(up act (+ bias)) for `readers`."""
        hidden = self.room("hidden", up.n, "floats", self.max_rows * up.n * 4)
        self.matmul(up, act, hidden, up.n, bias=bias)
        self.program.barrier()
        return self.activated("gated", hidden, up.n, *readers, curve=CURVES[curve])

    def attention(self, layer: int, table: Buffer | None, out: Act, *, neox: bool = False, scale: float | None = None,
                  window: int = 0, soft_cap: float = 0.0, sinks: Vector | None = None,
                  head_norms: tuple[Vector, Vector] | None = None, sub_norm: Vector | None = None) -> None:  # fmt: skip
        """Rotate and store this step's qkv, attend over the pages of `layer`, leave the result in `out`.

        Queries are multiplied by `scale` (1 / sqrt(head_dim) if not given). A row sees positions > its own - `window`
        (0: all); a score s becomes soft_cap * tanh(s / soft_cap) (0: s); `sinks`: a logit per head in its sum;
        `head_norms`: weights of an RMS norm of each query and of each key before they turn; `sub_norm`: of what all
        heads together give. Without a table none turns.
        """
        s, kv, add = self.shape, self.kv, self.program.add
        q, ld, (pages, at) = self.qkv.address, self.ld_qkv, kv.place(layer)
        keys, values = q + s.n_heads * s.head_dim * 4, q + (s.n_heads + s.n_kv_heads) * s.head_dim * 4
        assert table is None or table.n_bytes >= kv.n_ctx * s.rope_dim * 4, (table.n_bytes, kv.n_ctx, s.rope_dim)
        assert head_norms is None or head_norms[0].k == head_norms[1].k == s.head_dim, head_norms
        q_norm, k_norm = ((w.address, float(s.eps)) for w in head_norms) if head_norms else ((0, 0.0), (0, 0.0))
        k, v = attention.kv_module(kv.type_k), attention.kv_module(kv.type_v)
        turn, heads = (s.rope_dim, table.address, int(neox)) if table else (0, 0, 0), (ld, s.n_kv_heads, s.head_dim)
        add(rope.rope_q, q, ld, s.n_heads, s.head_dim, *turn, float(scale or s.head_dim**-0.5), *q_norm, counter=True)
        add(store_k, keys, *heads, *turn, at, kv.head_bytes, k.put_k, *k_norm, pages, counter=True)
        add(
            store_v, values, ld, s.n_kv_heads, s.v_dim, at + kv.k_bytes, kv.head_bytes, v.put_v, pages, counter=True
        )  # fmt: skip
        self.program.barrier()
        block = self.layer_block(layer, window, soft_cap, sinks)
        self.attend(block)
        self.merge(block, out, sub_norm)

    def layer_block(
        self, layer: int, window: int = 0, soft_cap: float = 0.0, sinks: Vector | None = None
    ) -> Buffer:
        """The constants of a layer's attention (kernels/attention.py)."""
        s, kv, (pages, at) = self.shape, self.kv, self.kv.place(layer)
        assert sinks is None or sinks.k == s.n_heads, layer
        assert kv.sees(layer) == 0 or 0 < window <= kv.sees(layer), (layer, window)
        return self.keep(attention.layer_block(
            self.ld_qkv, s.n_heads, s.n_kv_heads, s.head_dim, at, kv.head_bytes, kv.k_bytes, window, soft_cap,
            sinks.address if sinks else 0, pages, s.v_dim,
        ))  # fmt: skip

    def attend(self, block: Buffer) -> None:
        """Partials of the rotated and scaled queries in qkv over the cached pages of a layer."""
        s, kv = self.shape, self.kv
        k, v = attention.kv_module(kv.type_k), attention.kv_module(kv.type_v)
        self.program.add(
            attention.attend, self.qkv.address, block.address, k.prepare, k.scores, v.mix, self.partials.address,
            self.max_tiles, self._attention_scratch.address, counter=True,
            work=Work(
                past_bytes=s.n_kv_heads * kv.head_bytes // PAGE, past_macs=s.n_heads * (s.head_dim + s.v_dim),
                window=int(block.view(np.int64)[attention.WINDOW // 8]),
            ),
        )  # fmt: skip
        self.program.barrier()

    def merge(self, block: Buffer, out: Act, sub_norm: Vector | None = None) -> None:
        """The partials of `attend` become activations, after an RMS norm of the whole row where there is one."""
        s = self.shape
        assert out.k == s.n_heads * s.v_dim and out.k * 4 <= self.scratch_bytes, (out.k, s.n_heads, s.v_dim)
        assert sub_norm is None or sub_norm.k == out.k, (sub_norm, out.k)
        self.program.add(
            merged, self.partials.address, self.max_tiles, block.address, out.k, *out.addresses, out.copies,
            self.scratch.address, self.scratch_bytes, sub_norm.address if sub_norm else 0, float(s.eps), counter=True,
        )  # fmt: skip
        self.program.tile_barrier()

    def soften(self, scale: float = 1.0, soft_cap: float = 0.0) -> None:
        """Logits become soft_cap * tanh(scale * logit / soft_cap), or scale * logit without a cap."""
        n = self.shape.n_vocab
        self.program.add(
            softened, self.logits.address, self.ld_logits, n, float(scale), float(soft_cap), counter=True
        )
        self.program.barrier()

    def sample(self) -> None:
        """A token from each row of logits that has a sampler."""
        add, s = self.program.add, self.shape
        scratch = self.keep(Buffer(sample.scratch_bytes(s.n_vocab) * self.threads))
        add(sample.sample, self.logits.address, self.ld_logits, s.n_vocab, scratch.address, counter=True)

