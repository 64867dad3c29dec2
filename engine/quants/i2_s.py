"""I2_S of BitNet's fork: 256 weights in 68 bytes of memory, w = d * (q - 1) with q in 0..2 (3 where damaged).

    in a file    | for each 128 weights 32 bytes: bits 6 - 2i, 7 - 2i of byte l = q[32i + l] | ... | d f32 | 28 bytes |
                 one d behind a whole tensor, which no row could be multiplied without: `unfold` makes blocks of it
    row block    | d f32 | 64 bytes: bits 2k, 2k + 1 of byte 32h + l = q[128h + 32k + l] |
    panel block  | d[8] f32 | 2 x 8 vectors g of 32 bytes: byte 4r + c = row r's byte 32h + 4g + c |

The products are TQ2_0's, but d keeps its 32 bits. Not here: those.
"""

from engine.kernels.jit import inner, kernel
from engine.kernels.simd import column_f32, f32, ld_f32, ld_f32x8, ld_u8, st_f32, st_u8
from engine.quants import tq2_0
from engine.quants.panels import pack_words
from engine.quants.walk import walks

ACT = "q32"
ROW, PANEL, SUBS = 68, 544, 8
scales, start, total, join = tq2_0.scales, tq2_0.start, tq2_0.total, tq2_0.join
bits_of_panel, bits_of_row = tq2_0.values, tq2_0.row_values


@inner
def head(w):
    return (ld_f32x8(w),)


@inner
def head_rows(w, stride):
    return (column_f32(w, stride),)


@inner
def values(w, j):
    return bits_of_panel(w + 16, j)


@inner
def row_values(w, j):
    return bits_of_row(w + 4, j)


@inner
def pack_block(w, stride, out):
    pack_words(w, stride, 17, out)


@kernel(4)
def unfold(bits, n, d, out):
    """n blocks: their 64 bytes each in the file, the address of d, their row blocks."""
    for _ in range(n):
        st_f32(out, ld_f32(d))
        for i in range(64):
            byte = ld_u8(bits + i)
            st_u8(out + 4 + i, (byte & 3) << 6 | (byte & 12) << 2 | byte >> 2 & 12 | byte >> 6)
        bits += 64
        out += ROW


@kernel(3)
def unpack_row(row, n, out):
    for _ in range(n):
        d = ld_f32(row)
        for j in range(8):
            for k in range(32):
                q = ld_u8(row + 4 + (j >> 2) * 32 + k) >> 2 * (j & 3) & 3
                st_f32(out + (32 * j + k) * 4, d * f32(q - 1))
        row += ROW
        out += 1024


panels, rows, pack = walks(globals())
