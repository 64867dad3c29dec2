"""The sixteen weights that IQ4_NL and IQ4_XS choose from, denser near zero, and their products. Not here: the blocks.

Source: the values of ggml's non-linear 4-bit types. They fill int8: where the CPU wants weights without a sign, 128 are
added to each in the table and 128 * sum(x) is what the totals start from.
"""

from engine.kernels.dots import OWED, byte, dot_bytes
from engine.kernels.jit import inner
from engine.kernels.lookup import table
from engine.kernels.wide import zero_i32
from engine.quants.dot32 import less, nibble_vectors

WEIGHTS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
named = table([byte(w) for w in WEIGHTS])


@inner
def named_vectors(p):
    """128 bytes of nibbles: low ones are columns 0..15."""
    v = nibble_vectors(p)
    return named(v[0]), named(v[1]), named(v[2]), named(v[3]), named(v[4]), named(v[5]), named(v[6]), named(v[7])


@inner
def start(like, x):
    return less(like, x, OWED) if OWED >= 0 else zero_i32(like)


@inner
def total(v, _c, x):
    return dot_bytes(start(v[0], x), v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], x)


@inner
def weight(nibble):
    """One of the sixteen, of a number 0..15."""
    return WEIGHTS[nibble]
