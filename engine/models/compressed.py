"""Records attention over compressed rows (latent.py says what it computes). Not here: the loops (kernels/latent.py)."""

from engine.kernels import attention, rope
from engine.kernels.act import act_bytes
from engine.kernels.heads import heads
from engine.kernels.latent import merge_heads, store_heads, store_row, turn_queries
from engine.kernels.norm import rms_norm
from engine.kernels.program import Buffer, Work
from engine.kernels.step import N_ROWS
from engine.models.latent import Latent, LatentSizes
from engine.models.parts import CHUNK, Act, Parts
from engine.weights.tensor import ExpertMatrix, Matrix, Vector


def record_latent(w: Latent, parts: Parts, n: Act, i: int, table: Buffer) -> None:
    """x += attention of `n` in layer i."""
    z = parts.shape.latent
    assert z is not None and table.n_bytes >= parts.kv.n_ctx * z.rope_dim * 4, (z, table.n_bytes)
    row = _floats(parts, "row", z.rank + z.rope_dim)
    parts.matmul(w.kv_a, n, row, z.rank + z.rope_dim)
    if w.kv is not None:
        attended = _by_head(w, parts, z, n, i, table, row, w.kv)
    else:
        assert w.k is not None and w.v is not None
        attended = _by_row(w, parts, z, n, i, table, row, w.k, w.v)
    parts.add_product(w.o, attended)
    parts.program.barrier()


def _floats(parts: Parts, role: str, width: int) -> Buffer:
    return parts.room(role, width, "floats", parts.max_rows * width * 4)


def _queries(w: Latent, parts: Parts, z: LatentSizes, n: Act, q: Buffer, ld: int) -> None:
    """Queries as they are before they turn, at the first columns of q."""
    if w.q_a is not None and w.q_norm is not None:
        squeezed = _floats(parts, "squeezed", z.q_rank)
        parts.matmul(w.q_a, n, squeezed, z.q_rank)
        parts.program.barrier()
        n = _normed(parts, squeezed, z.q_rank, w.q_norm, w.q)
    parts.matmul(w.q, n, q, ld)


def _by_row(
    w: Latent, parts: Parts, z: LatentSizes, n: Act, i: int, table: Buffer, row: Buffer, k: ExpertMatrix,
    v: ExpertMatrix,
) -> Act:  # fmt: skip
    """One cached row for all heads."""
    kv, add, ld = parts.kv, parts.program.add, z.n_heads * (z.plain + z.rope_dim)
    scratch, block = (parts.scratch.address, parts.scratch_bytes), parts.layer_block(i)
    assert max(z.plain, z.rank) * 4 <= parts.scratch_bytes, (z, parts.scratch_bytes)
    q = _floats(parts, "queries", ld)
    _queries(w, parts, z, n, q, ld)
    parts.program.barrier()
    to_k, to_v = _head_act(parts, "plain queries", z.plain, k), _head_act(parts, "attended rows", z.rank, v)
    add(
        turn_queries, q.address, ld, z.n_heads, z.plain, z.rope_dim, table.address, float(z.scale), parts.qkv.address,
        parts.ld_qkv, z.rank, *to_k.addresses, *scratch, counter=True,
    )  # fmt: skip
    add(
        store_row, row.address, z.rank + z.rope_dim, z.rank, z.rope_dim, table.address, w.kv_norm.address,
        float(parts.shape.eps), block.address, attention.kv_module(kv.type_k).put_k,
        attention.kv_module(kv.type_v).put_v, counter=True,
    )  # fmt: skip
    parts.program.barrier()
    _heads(parts, k, to_k, parts.qkv, parts.ld_qkv, z.rank + z.rope_dim)
    parts.program.barrier()
    parts.attend(block)
    add(
        merge_heads, parts.partials.address, parts.max_tiles, block.address, z.rank, *to_v.addresses, *scratch,
        counter=True,
    )  # fmt: skip
    parts.program.barrier()
    results = _floats(parts, "results", z.n_heads * z.v_dim)
    _heads(parts, v, to_v, results, z.n_heads * z.v_dim, z.v_dim)
    parts.program.barrier()
    return parts.activated("attended", results, z.n_heads * z.v_dim, w.o)


def _by_head(
    w: Latent, parts: Parts, z: LatentSizes, n: Act, i: int, table: Buffer, row: Buffer, both: Matrix
) -> Act:
    """Keys and values of each head."""
    kv, add, width = parts.kv, parts.program.add, z.n_heads * (z.plain + z.v_dim)
    block = parts.layer_block(i)
    _queries(w, parts, z, n, parts.qkv, parts.ld_qkv)
    parts.program.barrier()
    made = _floats(parts, "keys and values", width)
    parts.matmul(both, _normed(parts, row, z.rank + z.rope_dim, w.kv_norm, both), made, width)
    add(
        rope.rope_q, parts.qkv.address, parts.ld_qkv, z.n_heads, z.k_dim, z.rope_dim, table.address, 0, float(z.scale),
        0, 0.0, z.plain, counter=True,
    )  # fmt: skip
    parts.program.barrier()
    add(
        store_heads, made.address, width, z.n_heads, z.plain, z.v_dim, row.address + z.rank * 4, z.rank + z.rope_dim,
        z.rope_dim, table.address, block.address, attention.kv_module(kv.type_k).put_k,
        attention.kv_module(kv.type_v).put_v, counter=True,
    )  # fmt: skip
    parts.program.barrier()
    attended = parts.act("attended", w.o.k, w.o)
    parts.attend(block)
    parts.merge(block, attended)
    return attended


def _normed(parts: Parts, source: Buffer, ld: int, weight: Vector, *readers: Matrix) -> Act:
    """RMS norm of the first columns of `source`, as many as there are weights, for `readers`; ld in floats."""
    k, out = weight.k, parts.act("normed row", weight.k, *readers)
    assert k <= ld and parts.max_rows * ld * 4 <= source.n_bytes and k * 4 <= parts.scratch_bytes, (weight.name, k, ld)
    parts.program.add(
        rms_norm, source.address, ld * 4, weight.address, k, float(parts.shape.eps), *out.addresses, out.copies,
        parts.scratch.address, parts.scratch_bytes, N_ROWS, counter=True, work=Work(weight.name, n_bytes=k * 4),
    )  # fmt: skip
    parts.program.tile_barrier()
    return out


def _head_act(parts: Parts, role: str, k: int, m: ExpertMatrix) -> Act:
    """Room for activations of width k of each head, head after head, as m multiplies with them."""
    f = m.whole.act
    buffer = parts.room(role, k, f, m.count * act_bytes(f, k, parts.max_rows))
    return Act(k, 0, buffer if f == "f32" else None, buffer if f == "q32" else None)


def _heads(parts: Parts, m: ExpertMatrix, act: Act, y: Buffer, ldy: int, stride: int) -> None:
    """y[:, h * stride : h * stride + m.n] = act of head h times the transpose of m's h-th matrix; floats."""
    whole = m.whole
    assert (m.count - 1) * stride + m.n <= ldy and m.n % 8 == 0 and not whole.tail, (whole.name, stride, ldy)
    assert parts.max_rows * ldy * 4 <= y.n_bytes, (whole.name, ldy, y.n_bytes)
    for span in whole.spans:
        n_bytes = span.n_panels * whole.panel_bytes
        with parts.reached(span, whole) as address:
            parts.program.add(
                heads, address, span.body, act.of(whole), act_bytes(whole.act, whole.k, 1), whole.blocks, y.address,
                ldy * 4, stride * 4, m.n // 8, span.first, span.n_panels, parts.scratch.address, parts.scratch_bytes,
                CHUNK // whole.panel_bytes, counter=True,
                work=Work(whole.name, n_bytes=n_bytes, row_macs=span.n_panels * 8 * whole.k),
            )  # fmt: skip
