"""IQ1_M: 256 weights in 56 bytes, sixteen times w = d / 8 * (2s + 1) * (8 * value +- 1), eight values to an entry.

    file block   | 32 bytes: low bits of an entry of 2048 | 16 bytes: nibble n = its top three bits, then: is it - 1? |
                 | 4 x u16: bits 3k = s of sixteen columns each, bits 12..15 = a nibble of d f16, the lowest first |
    panel block  | the file blocks of eight rows |

Not here: the grid (grids.py, eight times its values), grid_walk.py's part.
"""

from engine.kernels.fields import bits
from engine.kernels.grids import above, four_words, grid
from engine.kernels.jit import inner
from engine.kernels.simd import (
    column_i32, f32, ld_u8, ld_u32, low_f16, mul_f32x8, or_i32x8, shl_i32x8, sp_f32x8,
)  # fmt: skip
from engine.quants.grid_scales import odd
from engine.quants.grid_walk import grid_walks
from engine.quants.grids import IQ1

ACT = "q32"
ROW, PANEL, SUBS = 56, 448, 8
HALVES = True
entry = grid(IQ1)


@inner
def _byte(both):
    """The top nibbles of two neighbouring u16."""
    return or_i32x8(bits(both, 12, 15), shl_i32x8(bits(both, 28, 15), 4))


@inner
def head_rows(w, stride):
    low, high = column_i32(w + 48, stride), column_i32(w + 52, stride)
    d = low_f16(or_i32x8(_byte(low), shl_i32x8(_byte(high), 8)))
    return mul_f32x8(d, sp_f32x8(f32(0.125))), low, high


@inner
def scales(h, j):
    word, k = h[1] if j < 4 else h[2], 8 * (j & 2) + 6 * (j & 1)
    return h[0], odd(bits(word, k, 7)), odd(bits(word, k + 3, 7))


@inner
def _minus(nibble):
    """Eight ones where its top bit is set."""
    return (nibble >> 3 & 1) * 255


@inner
def row_values(w, j):
    which, top = ld_u32(w + 4 * j), ld_u8(w + 32 + 2 * j) | ld_u8(w + 33 + 2 * j) << 8
    v = four_words(
        entry(which & 255 | (top & 7) << 8), entry(which >> 8 & 255 | (top >> 4 & 7) << 8),
        entry(which >> 16 & 255 | (top >> 8 & 7) << 8), entry(which >> 24 | (top >> 12 & 7) << 8),
    )  # fmt: skip
    return above(v, _minus(top) | _minus(top >> 4) << 8 | _minus(top >> 8) << 16 | _minus(top >> 12) << 24)


panels, rows, pack, unpack_row = grid_walks(globals())
