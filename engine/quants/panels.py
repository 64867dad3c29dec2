"""What a quant module offers, and the loads and stores they share. Not here: any block format, the walks (walk.py).

A *panel* is eight rows of a matrix interleaved so that one vector lane is one row: no horizontal sums, and eight
scales are one load. It has the same bytes as the file's eight rows, in another order. A quant module offers

    panels       (w, act, T, t0, t1, n, y, ldy, p0, p1, scratch, add)   y[t][8p..8p+8] of tokens t0..t1, panels p0..p1
    rows         the same, `w` in the file's own layout (mapped weights)
    pack         (rows, n, out)             eight file rows, next to each other, to one panel
    unpack_row   (row, n, out)              one file row to float32
    ACT          the activation format it multiplies with: "q32" or "f32" (kernels/act.py)

n counts blocks in a row, T tokens in `act`, ldy bytes from token to token; add != 0 adds to y. One token goes through
`one`, more through `tile`, which keeps accumulators in scratch (GROUP vectors of 32 bytes a token): both run the same
f32 chain, blocks ascending, so a token's result does not depend on its company. File-layout rows read eight rows at
once and run the panel's float code on a vector whose lane is the row: same bits again.
"""

from engine.kernels.jit import inner
from engine.kernels.matmul import GROUP as GROUP
from engine.kernels.simd import add_f32x8, i32_of, ld_f32x8, ld_i16, ld_i32, ld_u32, st_f32x8, st_i16, st_i32, z_f32x8

@inner
def put(y, value, add):
    """Store a panel's eight results, or add them to what stands there."""
    if add:
        value = add_f32x8(ld_f32x8(y), value)
    st_f32x8(y, value)


@inner
def put_all(y, ldy, t0, t1, results, apart, add):
    """The same for tokens t0..t1, whose results stand `apart` bytes apart."""
    for t in range(t0, t1):
        put(y + t * ldy, ld_f32x8(results + (t - t0) * apart), add)


@inner
def zero(p, n):
    """Clear n vectors."""
    for i in range(n):
        st_f32x8(p + i * 32, z_f32x8())


@inner
def pack_shorts(w, stride, out):
    """Two bytes of each of eight rows, one after the other."""
    for r in range(8):
        st_i16(out + r * 2, ld_i16(w + r * stride))


@inner
def pack_words(w, stride, n, out):
    """n groups of four bytes of each of eight rows, a group's eight next to each other."""
    for r in range(8):
        for g in range(n):
            st_i32(out + g * 32 + r * 4, ld_i32(w + r * stride + g * 4))


@inner
def pack_bits(w, stride, out):
    """32 bits of each of eight rows: bit g of byte c of row r's word is column 4g + c."""
    for r in range(8):
        tops, word = ld_u32(w + r * stride), 0
        for g in range(8):
            four = (tops >> (4 * g) & 15) * 0x204081 & 0x01010101  # bit c to byte c
            word |= four << g
        st_i32(out + r * 4, i32_of(word))
