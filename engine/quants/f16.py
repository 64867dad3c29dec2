"""F16: half floats (IEEE binary16), a block of one. Not here: the other float types, which differ in the load only.

    file row     | w f16 ... |
    panel        | for each column: eight rows' w |

Activations stay f32 (llama.cpp rounds them to the weights' type); the chains are those of floats.py.
"""

from engine.kernels.jit import inner, kernel
from engine.kernels.simd import ld_f16, ld_i16, st_f32, st_i16
from engine.quants.floats import F16, four_one, four_tile
from engine.quants.panels import put, put_all, zero

ACT = "f32"
ROW, PANEL = 2, 16


@inner
def _one(w, act, T, t, n):
    return four_one(F16, w, act, t, n)


@inner
def _tile(w, act, T, t0, t1, n, out):
    four_tile(F16, w, act, t0, t1, n, out)


@inner
def _pack(file_rows, n, out):
    for k in range(n):
        for r in range(8):
            st_i16(out + k * PANEL + r * 2, ld_i16(file_rows + (r * n + k) * ROW))


@inner
def _one_row(w, stride, act, T, t, n, panel):
    _pack(w, n, panel)
    return _one(panel, act, T, t, n)


@kernel(12)
def panels(w, act, T, t0, t1, n, y, ldy, p0, p1, scratch, add):
    for p in range(p0, p1):
        panel = w + p * n * PANEL
        if t1 - t0 == 1:
            put(y + p * 32 + t0 * ldy, _one(panel, act, T, t0, n), add)
        else:
            zero(scratch, t1 - t0)
            _tile(panel, act, T, t0, t1, n, scratch)
            put_all(y + p * 32, ldy, t0, t1, scratch, add)


@kernel(12)
def rows(w, act, T, t0, t1, n, y, ldy, p0, p1, scratch, add):
    panel = scratch + (t1 - t0) * 32
    for p in range(p0, p1):
        eight = w + p * 8 * n * ROW
        if t1 - t0 == 1:
            put(y + p * 32 + t0 * ldy, _one_row(eight, n * ROW, act, T, t0, n, panel), add)
        else:
            _pack(eight, n, panel)
            zero(scratch, t1 - t0)
            _tile(panel, act, T, t0, t1, n, scratch)
            put_all(y + p * 32, ldy, t0, t1, scratch, add)


@kernel(3)
def pack(file_rows, n, out):
    _pack(file_rows, n, out)


@kernel(3)
def unpack_row(row, n, out):
    for k in range(n):
        st_f32(out + k * 4, ld_f16(row + k * 2))
