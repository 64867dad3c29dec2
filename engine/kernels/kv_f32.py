"""Keys and values as f32: four bytes each, as the model computes them. Not here: scores and sums (kv_floats.py, kv.py).

One kv head's part of a page, for head_dim D:

    K   32 panels x [D][8 positions] f32      position p, dim d at (p / 8 * D + d) * 32 + p % 8 * 4
    V   D / 16 slices x [256 positions][16] f32position p, dim d at (d / 16 * 256 + p) * 64 + d % 16 * 4
"""

from engine.kernels.jit import kernel
from engine.kernels.kv import mixer, value_at
from engine.kernels.kv_floats import VECTORS, prepare, scorer
from engine.kernels.simd import I64, f32x8, ir, ld_f32, ld_f32x8, read, st_f32, st_f32x8

__all__ = ["mix", "prepare", "put_k", "put_v", "scores"]

_load = lambda b, p: read(b, p, f32x8.ir)  # noqa: E731
_scores = scorer(4, _load)
_mix = mixer(32, VECTORS, lambda b, p, n: [_load(b, b.add(p, ir.Constant(I64, j * 32))) for j in range(n)])


@kernel(8)
def scores(k, q, q_bytes, n_q, first, n, head_dim, out):
    _scores(k, q, q_bytes, n_q, first, n, head_dim, out)


@kernel(8)
def mix(v, w, n_q, first, n, head_dim, out, out_bytes):
    _mix(v, head_dim // 8, w, n_q, first, n, out, out_bytes, 0)


@kernel(4)
def put_k(x, head_dim, r, k):
    out = k + r // 8 * head_dim * 32 + r % 8 * 4
    for d in range(head_dim):
        st_f32(out + d * 32, ld_f32(x + d * 4))


@kernel(4)
def put_v(x, head_dim, r, v):
    for d in range(0, head_dim, 8):
        st_f32x8(value_at(v, head_dim, r, d, 32), ld_f32x8(x + d * 4))
