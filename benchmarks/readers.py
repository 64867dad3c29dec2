"""The loops that bandwidth and clock are measured with, compiled as any kernel is. Not here: measuring (bandwidth.py).

A file of its own, because a kernel in a module that is run as a program would have no name to be cached under.
"""

from engine.kernels.jit import op
from engine.kernels.simd import add_i32x8, ld_i32x8, ld_i64, st_i32x8, st_i64, z_i32x8

LINES = 8 * 32  # bytes of one turn of the loop: eight sums, so that no addition waits for another


@op
def read_all(o, tid, nth, st):
    """words: 1 address; 2 bytes, a multiple of 256 times the threads; 3 room for 32 bytes a thread; 4 how often."""
    share = ld_i64(o + 16) // nth // LINES * LINES
    start, out = ld_i64(o + 8) + tid * share, ld_i64(o + 24) + tid * 64
    a, b, c, d = z_i32x8(), z_i32x8(), z_i32x8(), z_i32x8()
    e, f, g, h = z_i32x8(), z_i32x8(), z_i32x8(), z_i32x8()
    for _ in range(ld_i64(o + 32)):
        for p in range(start, start + share, LINES):
            a, b = add_i32x8(a, ld_i32x8(p)), add_i32x8(b, ld_i32x8(p + 32))
            c, d = add_i32x8(c, ld_i32x8(p + 64)), add_i32x8(d, ld_i32x8(p + 96))
            e, f = add_i32x8(e, ld_i32x8(p + 128)), add_i32x8(f, ld_i32x8(p + 160))
            g, h = add_i32x8(g, ld_i32x8(p + 192)), add_i32x8(h, ld_i32x8(p + 224))
    st_i32x8(out, add_i32x8(add_i32x8(add_i32x8(a, b), add_i32x8(c, d)), add_i32x8(add_i32x8(e, f), add_i32x8(g, h))))


@op
def chain(o, tid, nth, st):
    """words: 1 links; 2 room for 8 bytes. Each link waits for the one before: a multiply, 3 cycles, and an add, 1."""
    x = ld_i64(o + 16)
    for _ in range(ld_i64(o + 8)):
        x = x * x + 1
    st_i64(ld_i64(o + 16), x)
