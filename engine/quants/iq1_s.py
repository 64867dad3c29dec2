"""IQ1_S: 256 weights in 50 bytes, eight times w = d / 8 * (2s + 1) * (8 * value +- 1), eight values to an entry.

    file block   | d f16 | 32 bytes: low bits of an entry of 2048 | 8 x u16: bits 3n = top bits of entry 4j + n,
                 | bits 12..14 = s, bit 15: is it - 1? |
    panel block  | the file blocks of eight rows |

Not here: the grid (grids.py, eight times its values), grid_walk.py's part.
"""

from engine.kernels.fields import bits
from engine.kernels.grids import above, four_words, grid
from engine.kernels.jit import inner
from engine.kernels.simd import column_i32, ld_i16, ld_u32, or_i32x8, shl_i32x8
from engine.quants.grid_scales import column_d, odd
from engine.quants.grid_walk import grid_walks
from engine.quants.grids import IQ1

ACT = "q32"
ROW, PANEL, SUBS = 50, 400, 8
entry = grid(IQ1)


@inner
def _nibbles(w, stride):
    """Bits 12 to 15 of two neighbouring u16."""
    both = column_i32(w, stride)
    return or_i32x8(bits(both, 12, 15), shl_i32x8(bits(both, 28, 15), 4))


@inner
def head_rows(w, stride):
    low = or_i32x8(_nibbles(w + 34, stride), shl_i32x8(_nibbles(w + 38, stride), 8))
    high = or_i32x8(_nibbles(w + 42, stride), shl_i32x8(_nibbles(w + 46, stride), 8))
    return column_d(w, stride, 8), or_i32x8(low, shl_i32x8(high, 16))


@inner
def scales(h, j):
    return h[0], odd(bits(h[1], 4 * j, 7))


@inner
def row_values(w, j):
    which, top = ld_u32(w + 2 + 4 * j), ld_i16(w + 34 + 2 * j)
    v = four_words(
        entry(which & 255 | (top & 7) << 8), entry(which >> 8 & 255 | (top >> 3 & 7) << 8),
        entry(which >> 16 & 255 | (top >> 6 & 7) << 8), entry(which >> 24 | (top >> 9 & 7) << 8),
    )  # fmt: skip
    return above(v, top >> 15)


panels, rows, pack, unpack_row = grid_walks(globals())
