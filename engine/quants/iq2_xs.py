"""IQ2_XS: 256 weights in 74 bytes, sixteen times w = d / 8 * (2s + 1) * value, values eight to an entry of a grid.

    file block   | d f16 | 32 x u16: bits 0..8 an entry of 512, bits 9..15 its signs | 8 bytes: s low nibble, s' high |
    panel block  | the file blocks of eight rows |

s is of the first sixteen columns of a sub-block of 32, s' of the others. Seven bits are the signs of seven values; the
eighth makes the number of minus signs even. Not here: grid_walk.py's part.
"""

from engine.kernels.grids import four_words, grid, signed
from engine.kernels.jit import inner
from engine.kernels.simd import column_i32, ld_i64
from engine.quants.grid_scales import column_d, even, of_byte
from engine.quants.grid_walk import grid_walks
from engine.quants.grids import IQ2_XS

ACT = "q32"
ROW, PANEL, SUBS = 74, 592, 8
HALVES = True
entry = grid(IQ2_XS)


@inner
def head_rows(w, stride):
    return column_d(w, stride, 8), column_i32(w + 66, stride), column_i32(w + 70, stride)


@inner
def scales(h, j):
    first, second = of_byte(h[1], h[2], j)
    return h[0], first, second


@inner
def row_values(w, j):
    q = ld_i64(w + 2 + 8 * j)
    signs = even(q >> 9 & 127) | even(q >> 25 & 127) << 8 | even(q >> 41 & 127) << 16 | even(q >> 57 & 127) << 24
    return signed(four_words(entry(q & 511), entry(q >> 16 & 511), entry(q >> 32 & 511), entry(q >> 48 & 511)), signs)


panels, rows, pack, unpack_row = grid_walks(globals())
