"""IQ2_S: 256 weights in 82 bytes, sixteen times w = d / 8 * (2s + 1) * value, values eight to an entry of a grid.

    file block   | d f16 | 32 bytes: low bits of an entry of 1024 | 32 bytes of signs | 8 bytes: bits 2n = top bits of
                 | entry 4j + n | 8 bytes: s low nibble, s' high |
    panel block  | the file blocks of eight rows |

s is of the first sixteen columns of a sub-block of 32, s' of the others. Not here: grid_walk.py's part.
"""

from engine.kernels.grids import four_words, grid, signed
from engine.kernels.jit import inner
from engine.kernels.simd import column_i32, ld_u8, ld_u32
from engine.quants.grid_scales import column_d, of_byte
from engine.quants.grid_walk import grid_walks
from engine.quants.grids import IQ2_S

ACT = "q32"
ROW, PANEL, SUBS = 82, 656, 8
HALVES = True
entry = grid(IQ2_S)


@inner
def head_rows(w, stride):
    return column_d(w, stride, 8), column_i32(w + 74, stride), column_i32(w + 78, stride)


@inner
def scales(h, j):
    first, second = of_byte(h[1], h[2], j)
    return h[0], first, second


@inner
def row_values(w, j):
    which, top = ld_u32(w + 2 + 4 * j), ld_u8(w + 66 + j)
    v = four_words(
        entry(which & 255 | (top & 3) << 8), entry(which >> 8 & 255 | (top >> 2 & 3) << 8),
        entry(which >> 16 & 255 | (top >> 4 & 3) << 8), entry(which >> 24 | (top >> 6) << 8),
    )  # fmt: skip
    return signed(v, ld_u32(w + 34 + 4 * j))


panels, rows, pack, unpack_row = grid_walks(globals())
