"""F32: plain floats, a block of one. Not here: F16 and BF16, which differ in the load only.

    file row     | w f32 ... |
    panel        | for each column: eight rows' w |

Activations stay f32; the chains are those of floats.py.
"""

from engine.kernels.jit import inner, kernel
from engine.kernels.simd import ld_i32, st_i32
from engine.quants.floats import F32, four_one, four_tile
from engine.quants.walk import walks

ACT = "f32"
ROW, PANEL = 4, 32
PAIRS = False


@inner
def one(w, act, T, t, n):
    return four_one(F32, w, act, t, n)


@inner
def tile(w, act, T, t0, t1, n, _first, _end, out):
    four_tile(F32, w, act, t0, t1, n, out)


@inner
def pack_eight(file_rows, n, out):
    for k in range(n):
        for r in range(8):
            st_i32(out + k * PANEL + r * 4, ld_i32(file_rows + (r * n + k) * ROW))


@inner
def one_row(w, stride, act, T, t, n, panel):
    pack_eight(w, n, panel)
    return one(panel, act, T, t, n)


@kernel(3)
def unpack_row(row, n, out):
    for k in range(n):
        st_i32(out + k * 4, ld_i32(row + k * 4))


panels, rows, pack = walks(globals())
