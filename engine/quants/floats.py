"""The dot product of float weights, shared by F32, F16 and BF16. Not here: their layouts and loads.

Four chains per row (columns k % 4), closed as (a0 + a1) + (a2 + a3): one chain alone would wait four cycles per column.
"""

from engine.kernels.jit import inner
from engine.kernels.simd import add_f32x8, bc_f32x8, fma_f32x8, ld_bf16x8, ld_f16x8, ld_f32x8, st_f32x8, z_f32x8

F32, F16, BF16 = 0, 1, 2  # constant at each call: LLVM leaves one load


@inner
def _load(kind, w, k):
    """Column k of a panel as eight floats."""
    if kind == F32:
        return ld_f32x8(w + k * 32)
    if kind == F16:
        return ld_f16x8(w + k * 16)
    return ld_bf16x8(w + k * 16)


@inner
def four_one(kind, w, act, t, n):
    """One token: w a panel of n columns (a multiple of 4), act f32 [T][n]."""
    x = act + t * n * 4
    a0, a1, a2, a3 = z_f32x8(), z_f32x8(), z_f32x8(), z_f32x8()
    for k in range(0, n, 4):
        a0 = fma_f32x8(_load(kind, w, k), bc_f32x8(x), a0)
        a1 = fma_f32x8(_load(kind, w, k + 1), bc_f32x8(x + 4), a1)
        a2 = fma_f32x8(_load(kind, w, k + 2), bc_f32x8(x + 8), a2)
        a3 = fma_f32x8(_load(kind, w, k + 3), bc_f32x8(x + 12), a3)
        x += 16
    return _close(a0, a1, a2, a3)


@inner
def _close(a0, a1, a2, a3):
    return add_f32x8(add_f32x8(a0, a1), add_f32x8(a2, a3))


@inner
def four_tile(kind, w, act, t0, t1, n, out):
    """Two tokens share each load, with the same chains as one alone; an odd last token goes alone."""
    for t in range(t0, t1 - 1, 2):
        x, z = act + t * n * 4, act + (t + 1) * n * 4
        a0, a1, a2, a3 = z_f32x8(), z_f32x8(), z_f32x8(), z_f32x8()
        b0, b1, b2, b3 = z_f32x8(), z_f32x8(), z_f32x8(), z_f32x8()
        for k in range(0, n, 4):
            w0, w1 = _load(kind, w, k), _load(kind, w, k + 1)
            w2, w3 = _load(kind, w, k + 2), _load(kind, w, k + 3)
            a0, b0 = fma_f32x8(w0, bc_f32x8(x), a0), fma_f32x8(w0, bc_f32x8(z), b0)
            a1, b1 = fma_f32x8(w1, bc_f32x8(x + 4), a1), fma_f32x8(w1, bc_f32x8(z + 4), b1)
            a2, b2 = fma_f32x8(w2, bc_f32x8(x + 8), a2), fma_f32x8(w2, bc_f32x8(z + 8), b2)
            a3, b3 = fma_f32x8(w3, bc_f32x8(x + 12), a3), fma_f32x8(w3, bc_f32x8(z + 12), b3)
            x += 16
            z += 16
        st_f32x8(out + (t - t0) * 32, _close(a0, a1, a2, a3))
        st_f32x8(out + (t + 1 - t0) * 32, _close(b0, b1, b2, b3))
    if (t1 - t0) % 2:
        st_f32x8(out + (t1 - 1 - t0) * 32, four_one(kind, w, act, t1 - 1, n))
