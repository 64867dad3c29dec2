"""Scales and signs in the ways that the formats with tables keep them. Not here: where a format keeps which.

Scales are whole numbers 2s + 1; a vector's lane is one of eight file rows.
"""

from engine.kernels.fields import bits
from engine.kernels.jit import inner
from engine.kernels.simd import column_f16, column_i32, f32, i32_of, mul_f32x8, or_i32x8, shl_i32x8, sp_f32x8, sp_i32x8


@inner
def column_d(w, stride, part):
    """f16 d divided by `part`, a power of two."""
    return mul_f32x8(column_f16(w, stride), sp_f32x8(f32(1.0) / f32(part)))


@inner
def odd(s):
    return or_i32x8(shl_i32x8(s, 1), sp_i32x8(i32_of(1)))


@inner
def of_nibble(word, j):
    """2s + 1 of nibble j."""
    return odd(bits(word, 4 * j, 15))


@inner
def of_byte(low, high, j):
    """2s + 1 and 2s' + 1 of the nibbles of byte j, four bytes in each word."""
    word, k = low if j < 4 else high, 8 * (j & 3)
    return odd(bits(word, k, 15)), odd(bits(word, k + 4, 15))


@inner
def top_nibbles(w, stride, apart, count):
    """The top four bits of `count` words `apart` bytes from each other, in the nibbles of one word."""
    word = bits(column_i32(w, stride), 28, 15)
    for i in range(1, count):
        word = or_i32x8(word, shl_i32x8(bits(column_i32(w + i * apart, stride), 28, 15), 4 * i))
    return word


@inner
def even(seven):
    """Seven signs and the eighth, which makes their number even."""
    odds = seven ^ seven >> 4
    odds ^= odds >> 2
    return seven | ((odds ^ odds >> 1) & 1) << 7


@inner
def four_even(word):
    """32 signs out of the lower 28 bits."""
    return (
        even(word & 127) | even(word >> 7 & 127) << 8 | even(word >> 14 & 127) << 16 | even(word >> 21 & 127) << 24
    )
