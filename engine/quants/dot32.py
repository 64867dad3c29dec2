"""A panel's 32 columns as eight vectors, and their dot product with an activation block. Not here: formats, file rows.

Byte 4r + c of vector g is row r's column 4g + c. x is the address of an activation block (kernels/act.py).
"""

from engine.kernels.act import LESS
from engine.kernels.dots import IN_PLACE, dot_u4, dot_u5, hi4, lo4
from engine.kernels.fields import field, kept, up4
from engine.kernels.jit import inner
from engine.kernels.simd import f32, ld_i8x32, mul_f32x8, or_i8x32, sp_f32x8
from engine.kernels.wide import bc_i32, shl_i32


@inner
def eight_vectors(p):
    """256 bytes."""
    return (
        ld_i8x32(p), ld_i8x32(p + 32), ld_i8x32(p + 64), ld_i8x32(p + 96),
        ld_i8x32(p + 128), ld_i8x32(p + 160), ld_i8x32(p + 192), ld_i8x32(p + 224),
    )  # fmt: skip


@inner
def nibble_vectors(p):
    """128 bytes: low nibbles are columns 0..15, high ones 16..31."""
    v0, v1, v2, v3 = ld_i8x32(p), ld_i8x32(p + 32), ld_i8x32(p + 64), ld_i8x32(p + 96)
    return lo4(v0), lo4(v1), lo4(v2), lo4(v3), hi4(v0), hi4(v1), hi4(v2), hi4(v3)


@inner
def field_vectors(p, shift, mask):
    """256 bytes: a field of each."""
    v = eight_vectors(p)
    return (
        field(v[0], shift, mask), field(v[1], shift, mask), field(v[2], shift, mask), field(v[3], shift, mask),
        field(v[4], shift, mask), field(v[5], shift, mask), field(v[6], shift, mask), field(v[7], shift, mask),
    )  # fmt: skip


@inner
def left(v, shift, mask):
    """A field of each byte, left where it is if the CPU multiplies such: its sums are 1 << shift times too large."""
    return kept(v, shift, mask) if IN_PLACE else field(v, shift, mask)


@inner
def left_vectors(p, shift, mask):
    """256 bytes."""
    v = eight_vectors(p)
    return (
        left(v[0], shift, mask), left(v[1], shift, mask), left(v[2], shift, mask), left(v[3], shift, mask),
        left(v[4], shift, mask), left(v[5], shift, mask), left(v[6], shift, mask), left(v[7], shift, mask),
    )  # fmt: skip


@inner
def scale_left(d, shift):
    """The scale of such sums; exact, as their whole numbers stay below 2^24."""
    return mul_f32x8(d, sp_f32x8(f32(1.0) / f32(1 << shift))) if IN_PLACE else d


@inner
def one_bit_vectors(p):
    """32 bytes: bit g of each byte is a column of group g."""
    v = ld_i8x32(p)
    return (
        field(v, 0, 1), field(v, 1, 1), field(v, 2, 1), field(v, 3, 1),
        field(v, 4, 1), field(v, 5, 1), field(v, 6, 1), field(v, 7, 1),
    )  # fmt: skip


@inner
def with_tops(v, top):
    """The bits from the fifth up, above the four of v."""
    return (
        or_i8x32(v[0], up4(top[0])), or_i8x32(v[1], up4(top[1])), or_i8x32(v[2], up4(top[2])),
        or_i8x32(v[3], up4(top[3])), or_i8x32(v[4], up4(top[4])), or_i8x32(v[5], up4(top[5])),
        or_i8x32(v[6], up4(top[6])), or_i8x32(v[7], up4(top[7])),
    )  # fmt: skip


@inner
def dot_nibbles(start, v, x):
    """start + 32 columns of weights 0..15 times the int8 at x."""
    return dot_u4(start, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], x)


@inner
def dot_fives(start, v, x):
    """Weights 0..31."""
    return dot_u5(start, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], x)


@inner
def less(like, x, shift):
    """-sum(x) << shift: what takes an offset of 1 << shift off unsigned weights."""
    return shl_i32(bc_i32(like, x + LESS), shift)
