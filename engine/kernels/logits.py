"""Logits as a family wants them: scaled, kept under a soft cap. Not here: the product they come from, the choice.

    softened record   1 logits f32 [n_out][ld]   2 ld (floats)   3 n_vocab   4 scale (f32)   5 cap (f32; 0: none)
                      15 counter

x becomes cap * tanh(scale * x / cap), or scale * x (Gemma 2: arXiv:2408.00118; Granite's logits_scaling).
"""

from engine.kernels.curves import capped8
from engine.kernels.jit import op
from engine.kernels.simd import f32, ld_f32, ld_f32x8, ld_i64, mul_f32x8, sp_f32x8, st_f32x8
from engine.kernels.step import N_OUT
from engine.kernels.sync import atomic_add

CHUNK = 4096  # logits handed out at once: 3 us of curves


@op
def softened(o, tid, nth, st):
    logits, ld, n, scale, cap = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), sp_f32x8(ld_f32(o + 32)), ld_f32(o + 40)
    chunks = (n + CHUNK - 1) // CHUNK
    while True:
        c = atomic_add(ld_i64(o + 120), 1)
        if c >= chunks * ld_i64(st + N_OUT):
            return
        row, first = logits + c // chunks * ld * 4, c % chunks * CHUNK
        end = min(n, first + CHUNK)
        for i in range(first * 4, (end + 7) // 8 * 32, 32):
            x = mul_f32x8(ld_f32x8(row + i), scale)
            st_f32x8(row + i, capped8(x, cap) if cap > f32(0.0) else x)
