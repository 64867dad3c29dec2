"""Keys and values as bf16: the upper half of a float, to nearest even. Not here: scores and sums (kv_floats.py, kv.py).

One kv head's part of a page, for head_dim D:

    K   32 panels x [D][8 positions] bf16     position p, dim d at (p / 8 * D + d) * 16 + p % 8 * 2
    V   D / 16 slices x [256 positions][16] bf16position p, dim d at (d / 16 * 256 + p) * 32 + d % 16 * 2

f16's bytes with a float's range and 8 bits of precision, not 11: for models whose keys or values pass 65504.
"""

from typing import Any

from engine.kernels.half import load_bf16, to_bf16
from engine.kernels.jit import kernel
from engine.kernels.kv import mixer, value_at
from engine.kernels.kv_floats import VECTORS, prepare, scorer
from engine.kernels.simd import I32, I64, f32x8, i64, ir, ld_f32x8, make, void, write

__all__ = ["mix", "prepare", "put_k", "put_v", "scores"]


def _spread(b: Any, p: Any, x: Any) -> None:
    """Eight floats as bf16, sixteen bytes apart: eight dims of one position in a panel."""
    half = to_bf16(b, x)
    for i in range(8):
        write(b, b.add(p, ir.Constant(I64, i * 16)), b.extract_element(half, ir.Constant(I32, i)))


_spread_bf16x8 = make(void, (i64, f32x8), _spread)
_st_bf16x8 = make(void, (i64, f32x8), lambda b, p, x: write(b, p, to_bf16(b, x)))
_scores = scorer(2, lambda b, p: load_bf16(b, p, 8))
_mix = mixer(16, VECTORS, lambda b, p, n: [load_bf16(b, b.add(p, ir.Constant(I64, j * 16)), 8) for j in range(n)])


@kernel(8)
def scores(k, q, q_bytes, n_q, first, n, head_dim, out):
    _scores(k, q, q_bytes, n_q, first, n, head_dim, out)


@kernel(8)
def mix(v, w, n_q, first, n, head_dim, out, out_bytes):
    _mix(v, head_dim // 8, w, n_q, first, n, out, out_bytes, 0)


@kernel(4)
def put_k(x, head_dim, r, k):
    out = k + r // 8 * head_dim * 16 + r % 8 * 2
    for d in range(0, head_dim, 8):
        _spread_bf16x8(out + d * 16, ld_f32x8(x + d * 4))


@kernel(4)
def put_v(x, head_dim, r, v):
    for d in range(0, head_dim, 8):
        _st_bf16x8(value_at(v, head_dim, r, d, 16), ld_f32x8(x + d * 4))
