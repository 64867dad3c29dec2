"""What an encoder adds to a token's row: the row of its position, that of a kind of text. Not here: the norm behind.

    placed record   1 x f32 [rows][k]   2 k   3 rows of positions f32 [positions][k] or 0
                    4 row of the kind f32 [k] or 0   15 counter

Devlin et al. 2018 (arXiv:1810.04805). Nobody asks for a position that has no row: a text has at most so many (load.py).
"""

from engine.kernels.jit import op
from engine.kernels.simd import add_f32x8, ld_f32x8, ld_i64, st_f32x8
from engine.kernels.step import N_ROWS, POSITIONS
from engine.kernels.sync import atomic_add


@op
def placed(o, tid, nth, st):
    k, places, kind = ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32)
    counter, positions, T = ld_i64(o + 120), ld_i64(st + POSITIONS), ld_i64(st + N_ROWS)
    while True:
        t = atomic_add(counter, 1)
        if t >= T:
            return
        x, place = ld_i64(o + 8) + t * k * 4, places + ld_i64(positions + t * 8) * k * 4
        for i in range(0, k * 4, 32):
            y = ld_f32x8(x + i)
            if kind != 0:
                y = add_f32x8(y, ld_f32x8(kind + i))
            if places != 0:
                y = add_f32x8(y, ld_f32x8(place + i))
            st_f32x8(x + i, y)
