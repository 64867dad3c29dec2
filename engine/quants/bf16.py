"""BF16: the upper half of a float, a block of one. Not here: the other float types, which differ in the load only.

    file row     | w bf16 ... |
    panel        | for each column: eight rows' w |

Activations stay f32 (llama.cpp rounds them to the weights' type); the chains are those of floats.py.
"""

from engine.kernels.jit import inner, kernel
from engine.kernels.simd import ld_bf16, ld_i16, st_f32, st_i16
from engine.quants.floats import BF16, four_one, four_tile
from engine.quants.walk import walks

ACT = "f32"
ROW, PANEL = 2, 16
PAIRS = False


@inner
def one(w, act, T, t, n):
    return four_one(BF16, w, act, t, n)


@inner
def tile(w, act, T, t0, t1, n, _first, _end, out):
    four_tile(BF16, w, act, t0, t1, n, out)


@inner
def pack_eight(file_rows, n, out):
    for k in range(n):
        for r in range(8):
            st_i16(out + k * PANEL + r * 2, ld_i16(file_rows + (r * n + k) * ROW))


@inner
def one_row(w, stride, act, T, t, n, panel):
    pack_eight(w, n, panel)
    return one(panel, act, T, t, n)


@kernel(3)
def unpack_row(row, n, out):
    for k in range(n):
        st_f32(out + k * 4, ld_bf16(row + k * 2))


panels, rows, pack = walks(globals())
