"""IQ3_S: 256 weights in 110 bytes, eight times w = d * (2s + 1) * value, values four to an entry of a grid.

    file block   | d f16 | 64 bytes: low bits of an entry of 512 | 8 bytes: bit n = top bit of entry 8j + n |
                 | 32 bytes of signs | 4 bytes: nibble j = s |
    panel block  | the file blocks of eight rows |

Not here: grid_walk.py's part.
"""

from engine.kernels.grids import eight_words, grid, signed
from engine.kernels.jit import inner
from engine.kernels.simd import column_i32, ld_u8, ld_u32
from engine.quants.grid_scales import column_d, of_nibble
from engine.quants.grid_walk import grid_walks
from engine.quants.grids import IQ3_S

ACT = "q32"
ROW, PANEL, SUBS = 110, 880, 8
entry = grid(IQ3_S)


@inner
def head_rows(w, stride):
    return column_d(w, stride, 1), column_i32(w + 106, stride)


@inner
def scales(h, j):
    return h[0], of_nibble(h[1], j)


@inner
def _which(p, top, n):
    return ld_u8(p + n) | (top >> n & 1) << 8


@inner
def row_values(w, j):
    p, top = w + 2 + 8 * j, ld_u8(w + 66 + j)
    v = eight_words(
        entry(_which(p, top, 0)), entry(_which(p, top, 1)), entry(_which(p, top, 2)), entry(_which(p, top, 3)),
        entry(_which(p, top, 4)), entry(_which(p, top, 5)), entry(_which(p, top, 6)), entry(_which(p, top, 7)),
    )  # fmt: skip
    return signed(v, ld_u32(w + 74 + 4 * j))


panels, rows, pack, unpack_row = grid_walks(globals())
