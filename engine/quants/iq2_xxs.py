"""IQ2_XXS: 256 weights in 66 bytes, eight times w = d / 8 * (2s + 1) * value, values eight to an entry of a grid.

    file block   | d f16 | 8 x (4 bytes, an entry of 256 each | u32: bits 7n = signs of entry n, bits 28 = s) |
    panel block  | the file blocks of eight rows |

Seven bits are the signs of seven values; the eighth makes the number of minus signs even.
Not here: grid_walk.py's part.
"""

from engine.kernels.grids import four_words, grid, signed
from engine.kernels.jit import inner
from engine.kernels.simd import ld_u32
from engine.quants.grid_scales import column_d, four_even, of_nibble, top_nibbles
from engine.quants.grid_walk import grid_walks
from engine.quants.grids import IQ2_XXS

ACT = "q32"
ROW, PANEL, SUBS = 66, 528, 8
entry = grid(IQ2_XXS)


@inner
def head_rows(w, stride):
    return column_d(w, stride, 8), top_nibbles(w + 6, stride, 8, 8)


@inner
def scales(h, j):
    return h[0], of_nibble(h[1], j)


@inner
def row_values(w, j):
    which, signs = ld_u32(w + 2 + 8 * j), ld_u32(w + 6 + 8 * j)
    v = four_words(entry(which & 255), entry(which >> 8 & 255), entry(which >> 16 & 255), entry(which >> 24))
    return signed(v, four_even(signs))


panels, rows, pack, unpack_row = grid_walks(globals())
