"""IQ3_XXS: 256 weights in 98 bytes, eight times w = d / 4 * (2s + 1) * value, values four to an entry of a grid.

    file block   | d f16 | 64 bytes, an entry of 256 each | 8 x u32: bits 7n = signs of values 8n.., bits 28 = s |
    panel block  | the file blocks of eight rows |

Seven bits are the signs of seven values; the eighth makes the number of minus signs even.
Not here: grid_walk.py's part.
"""

from engine.kernels.grids import eight_words, grid, signed
from engine.kernels.jit import inner
from engine.kernels.simd import ld_u8, ld_u32
from engine.quants.grid_scales import column_d, four_even, of_nibble, top_nibbles
from engine.quants.grid_walk import grid_walks
from engine.quants.grids import IQ3_XXS

ACT = "q32"
ROW, PANEL, SUBS = 98, 784, 8
entry = grid(IQ3_XXS)


@inner
def head_rows(w, stride):
    return column_d(w, stride, 4), top_nibbles(w + 66, stride, 4, 8)


@inner
def scales(h, j):
    return h[0], of_nibble(h[1], j)


@inner
def row_values(w, j):
    p = w + 2 + 8 * j
    v = eight_words(
        entry(ld_u8(p)), entry(ld_u8(p + 1)), entry(ld_u8(p + 2)), entry(ld_u8(p + 3)),
        entry(ld_u8(p + 4)), entry(ld_u8(p + 5)), entry(ld_u8(p + 6)), entry(ld_u8(p + 7)),
    )  # fmt: skip
    return signed(v, four_even(ld_u32(w + 66 + 4 * j)))


panels, rows, pack, unpack_row = grid_walks(globals())
