"""A layer's experts in three ops, each needed one read once for all its rows. Not here: who needs whom (route.py).

    gate_up record    1 needed   2 slots   3 places of the layer   4 gate kernel   5 its act   6 blocks in its row
                      7 up kernel   8 its act   9 blocks   10 block of constants   11 n_ff   12 out f32 [slots][n_ff]
                      13 scratch   14 bytes between threads   15 counter
    slot_acts record  1 needed   2 x f32 [slots][k]   3 k   4 act f32 or 0   5 act q32 or 0   6 scratch
                      7 bytes between threads   15 counter
    down record       1 needed   2 slots   3 places of the layer   4 kernel   5 act of slots   6 blocks in a row   7 k
                      8 x f32 [rows][k]   9 fewest panels at once   10 scratch   11 bytes between threads
                      12 biases f32 [experts][k] or 0   15 counter

    block             K, GATE_BIAS and UP_BIAS (addresses of f32 [experts][n_ff], 0: none), CURVE (curves.py: SILU,
                      CLAMPED), LIMIT

Words 5 and 8 of gate_up are addresses of f32 or q32 acts; bit 0 is set for q32 (acts lie on 64-byte lines).

A slot is one row with one of its experts. Slots are sorted by expert, so each expert's hidden rows and acts lie
together; its input rows do not: they are gathered, unless they happen to be neighbours. An expert that is still being
read (places.py) is waited for when it is come to; gate_up begins with those that are there. Results join x in order of
the experts, one chain per element, x = fma(weight, result, x): `down` hands out columns and takes the experts of each
one after the other, so nothing depends on threads or on the other rows, and no [slots][k] results (33 MB for 512 rows
of Qwen3-30B) are kept. A bias is added to a result before anything else happens to it.
"""

from engine.kernels.act import BLOCK, act_bytes, copy, emit
from engine.kernels.chunks import ROWS, take
from engine.kernels.curves import CLAMPED, SILU, bend_times, clamped_times
from engine.kernels.gated import HIDDEN
from engine.kernels.jit import inner, op
from engine.kernels.matmul import TOKENS
from engine.kernels.matmul import scratch_bytes as product_bytes
from engine.kernels.places import DOWN, GATE, UP, has_come, place
from engine.kernels.program import Buffer
from engine.kernels.route import SLOT, expert_of, first_slot, in_turn, n_needed, row_of
from engine.kernels.simd import (
    add_f32x8, bc_f32x8, fma_f32x8, ld_f32, ld_f32x8, ld_i8x16, ld_i8x32, ld_i64, st_f32x8, st_i8x16, st_i8x32,
)  # fmt: skip
from engine.kernels.step import N_ROWS
from engine.kernels.sync import invoke_matmul

import numpy as np  # isort: skip

GROUP = 64  # slots of one expert that share a pass: their gathered acts (393 KB for 2048 columns) stay in L2
COLUMNS = 64  # most of a chunk of `down`
# With few rows, where an expert's share of 64 columns is 27 KB and each new stretch costs: 0.65 to 0.74 of gate_up's
# bytes per second (Qwen3-30B's layer, Q4_K and Q6_K, two threads of Zen 4).
WIDE_ROWS, WIDE = 32, 256
PRODUCT = GROUP * HIDDEN * 4
K, GATE_BIAS, UP_BIAS, CURVE, LIMIT = range(0, 40, 8)


def layer_block(k: int, gate_bias: int = 0, up_bias: int = 0, curve: int = SILU, limit: float = 0.0) -> Buffer:
    """A layer's constants."""
    block = Buffer(40)
    block.view(np.int64)[:4] = k, gate_bias, up_bias, curve
    block.view(np.float32)[LIMIT // 4] = limit
    return block


def scratch_bytes(panel_bytes: int, formats: tuple[str, str], k: int) -> int:
    """Scratch of one thread for gate_up and down: products, a kernel's own, gathered acts of the gate and the up format
    (once where they are the same); `panel_bytes` of the widest expert matrix."""
    gathered = sum(act_bytes(fmt, k, GROUP) for fmt in set(formats))
    return max(2 * PRODUCT, TOKENS * COLUMNS * 4) + product_bytes(panel_bytes) + gathered


@inner
def _token_bytes(act, k):
    return k * 3 if act & 1 else k * 4


@inner
def _gather(slots, first, n, act, T, k, out):
    """The rows of n slots as an act of n tokens."""
    if act & 1 == 0:
        for s in range(n):
            copy(act + row_of(slots, first + s) * k * 4, k, out + s * k * 4)
        return
    act, to = act - 1, out
    for _ in range(k // 32 * 2):  # blocks of the coarse half, then of the fine one
        for s in range(n):
            block = act + row_of(slots, first + s) * BLOCK
            st_i8x32(to, ld_i8x32(block))
            st_i8x16(to + 32, ld_i8x16(block + 32))
            to += BLOCK
        act += T * BLOCK


@inner
def _product(body, w, act, T, t, n, blocks, y, p0, p1, scratch):
    """Panels p0..p1 for tokens t..t+n-1 of T; y f32 [n][HIDDEN]."""
    invoke_matmul(body, w, act, T, t, t + n, blocks, y - t * HIDDEN * 4 - p0 * 32, HIDDEN * 4, p0, p1, scratch, 0)


@inner
def _add(x, bias, n):
    for i in range(0, n * 4, 32):
        st_f32x8(x + i, add_f32x8(ld_f32x8(x + i), ld_f32x8(bias + i)))


@op
def gate_up(o, tid, nth, st):
    """silu(gate x) * (up x) of every slot. Units: 64 hidden rows of one expert, expert after expert."""
    needed, slots, places, T = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(st + N_ROWS)
    gate_act, up_act, block, n_ff = ld_i64(o + 40), ld_i64(o + 64), ld_i64(o + 80), ld_i64(o + 88)
    k, gate_bias, up_bias = ld_i64(block + K), ld_i64(block + GATE_BIAS), ld_i64(block + UP_BIAS)
    curve, limit = ld_i64(block + CURVE), ld_f32(block + LIMIT)
    out, gate = ld_i64(o + 96), ld_i64(o + 104) + tid * ld_i64(o + 112)
    up, scratch, held = gate + PRODUCT, gate + 2 * PRODUCT, -1
    gate_room = gate + ld_i64(o + 112) - GROUP * _token_bytes(gate_act, k)  # at the scratch's end
    up_room = gate_room if up_act == gate_act else gate_room - GROUP * _token_bytes(up_act, k)
    chunks = (n_ff + HIDDEN - 1) // HIDDEN
    n_units = n_needed(needed) * chunks
    while True:
        u, end = take(ld_i64(o + 120), n_units, nth, 1, n_units)
        if u == end:
            break
        for unit in range(u, end):
            i, column = in_turn(needed, unit // chunks), unit % chunks * HIDDEN
            p0, p1 = column // 8, min(column + HIDDEN, n_ff) // 8
            expert, last = expert_of(needed, i), first_slot(needed, i + 1)
            if not has_come(places, expert, GATE, tid, st) or not has_come(places, expert, UP, tid, st):
                return
            gate_w, up_w = place(places, expert, GATE), place(places, expert, UP)
            for s in range(first_slot(needed, i), last, GROUP):
                n = min(GROUP, last - s)
                t, tokens, gate_x, up_x = row_of(slots, s), T, gate_act & -2, up_act & -2
                if row_of(slots, s + n - 1) - t != n - 1:
                    gate_x, up_x, t, tokens = gate_room, up_room, 0, n
                    if held != s:
                        _gather(slots, s, n, gate_act, T, k, gate_room)
                        if up_act != gate_act:
                            _gather(slots, s, n, up_act, T, k, up_room)
                        held = s
                _product(ld_i64(o + 32), gate_w, gate_x, tokens, t, n, ld_i64(o + 48), gate, p0, p1, scratch)
                _product(ld_i64(o + 56), up_w, up_x, tokens, t, n, ld_i64(o + 72), up, p0, p1, scratch)
                for j in range(n):
                    h, u, width = gate + j * HIDDEN * 4, up + j * HIDDEN * 4, (p1 - p0) * 8
                    if gate_bias != 0:
                        _add(h, gate_bias + (expert * n_ff + column) * 4, width)
                        _add(u, up_bias + (expert * n_ff + column) * 4, width)
                    if curve == CLAMPED:
                        clamped_times(h, u, width, limit)
                    else:
                        bend_times(h, u, width, SILU)
                    copy(h, width, out + ((s + j) * n_ff + column) * 4)


@op
def slot_acts(o, tid, nth, st):
    """Hidden rows of slots to activations."""
    x, k, plain, blocks = ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32), ld_i64(o + 40)
    scratch = ld_i64(o + 48) + tid * ld_i64(o + 56)
    begin, n = first_slot(ld_i64(o + 8), 0), first_slot(ld_i64(o + 8), n_needed(ld_i64(o + 8)))
    while True:
        s, end = take(ld_i64(o + 120), n - begin, nth, ROWS, n)
        if s == end:
            break
        for slot in range(begin + s, begin + end):
            copy(x + slot * k * 4, k, scratch)
            emit(scratch, k, plain, blocks, n, slot)


@inner
def _join(slots, first, end, y, ld, x, ldx, n):
    """x += weight * y for n columns of slots first..end-1."""
    for s in range(first, end):
        weight, row, result = bc_f32x8(slots + s * SLOT + 8), x + row_of(slots, s) * ldx, y + (s - first) * ld
        for i in range(0, n * 4, 32):
            st_f32x8(row + i, fma_f32x8(weight, ld_f32x8(result + i), ld_f32x8(row + i)))


@op
def down(o, tid, nth, st):
    """x += the weighted results. Units: a few columns, all experts of each ascending."""
    needed, slots, places, body = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 32)
    act, blocks, k, x, bias = ld_i64(o + 40), ld_i64(o + 48), ld_i64(o + 56), ld_i64(o + 64), ld_i64(o + 96)
    y = ld_i64(o + 80) + tid * ld_i64(o + 88)
    scratch, count = y + TOKENS * COLUMNS * 4, n_needed(needed)
    most = WIDE if ld_i64(st + N_ROWS) <= WIDE_ROWS else COLUMNS
    ld, n_slots, pairs = most * 4, first_slot(needed, count), (k // 8 + 1) // 2
    while True:
        q0, q1 = take(ld_i64(o + 120), pairs, nth, (ld_i64(o + 72) + 1) // 2, most // 16)
        if q0 == q1:
            break
        p0, p1 = 2 * q0, min(2 * q1, k // 8)
        for i in range(count):
            if not has_come(places, expert_of(needed, i), DOWN, tid, st):
                return
            w, last = place(places, expert_of(needed, i), DOWN), first_slot(needed, i + 1)
            for s in range(first_slot(needed, i), last, TOKENS):
                end = min(s + TOKENS, last)
                at = y - s * ld - p0 * 32
                invoke_matmul(body, w, act, n_slots, s, end, blocks, at, ld, p0, p1, scratch, 0)
                if bias != 0:
                    for j in range(end - s):
                        _add(y + j * ld, bias + (expert_of(needed, i) * k + p0 * 8) * 4, (p1 - p0) * 8)
                _join(slots, s, end, y, ld, x + p0 * 32, k * 4, (p1 - p0) * 8)
