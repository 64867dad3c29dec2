"""Which experts a row goes to and with what weight, and what each expert thus has to do. Not here: the experts.

    choose record   1 router's logits f32 [rows][ld]   2 ld (floats)   3 n_experts   4 n_used   5 chosen
                    6 weights are shares of the chosen ones (1) or of all (0)   15 counter
    elect record    1 ... 6 as choose, ld with room for n_experts + n_groups floats more   7 gate: SOFTMAX or SIGMOID
                    8 bias of the choice f32 or 0   9 groups   10 groups that are used   11 of how many experts a
                    group's score is the sum   12 factor of the weights (f32)   15 counter
    group record    1 chosen   2 n_experts   3 n_used   4 needed   5 slots   6 scratch i64 [n_experts]

    chosen   [rows][n_used] of SLOT bytes: i64 expert, f32 weight; a row's experts ascend
    needed   i64 how many, i64 address of the order to begin them in (i64 [how many], 0: ascending), then for each
             expert that somebody needs, ascending: i64 expert, i64 its first slot; at the end one more whose first slot
             is the number of slots
    slots    [rows * n_used] of SLOT bytes: i64 row, f32 weight; by expert, then by row

Weights are softmax(logits) of the n_used greatest (of equal ones the lower expert first), divided by their sum where
they are shares of the chosen ones: what transformers calls norm_topk_prob (Shazeer et al. 2017, arXiv:1701.06538).
`elect` knows more: sigmoid(logit) in place of a probability, a bias that decides who is chosen and is no part of the
weights, groups of experts of which only the best are looked at (DeepSeek-V2, arXiv:2405.04434: the score of a group is
its best expert's; DeepSeek-V3, arXiv:2412.19437: its two best ones' sum), a factor for all weights.
"""

from engine.kernels.chunks import rows_of
from engine.kernels.jit import inner, op
from engine.kernels.simd import f32, ld_f32, ld_i64, sp_f32x8, st_f32, st_i64
from engine.kernels.step import N_ROWS, REPLICATE
from engine.kernels.vmath import exp8, lane0

import numpy as np  # isort: skip

SLOT = 16
SOFTMAX, SIGMOID = 0, 1
NEVER = np.float32(-3e38)
LEAST = np.float32(1e-20)  # of a sum of sigmoids that is divided by


def needed_bytes(n_experts: int) -> int:
    return 16 * (n_experts + 2)


@inner
def n_needed(needed):
    return ld_i64(needed)


@inner
def in_turn(needed, i):
    """Which of the needed ones to begin as the i-th."""
    order = ld_i64(needed + 8)
    return i if order == 0 else ld_i64(order + i * 8)


@inner
def expert_of(needed, i):
    """The i-th needed expert."""
    return ld_i64(needed + 16 + i * 16)


@inner
def first_slot(needed, i):
    """Where the i-th needed expert's slots begin, and those of the one before end."""
    return ld_i64(needed + 24 + i * 16)


@inner
def row_of(slots, s):
    return ld_i64(slots + s * SLOT)


@inner
def _put(entry, number, value):
    st_i64(entry, number)
    st_f32(entry + 8, value)


@inner
def _move(source, entry):
    _put(entry, ld_i64(source), ld_f32(source + 8))


@inner
def _greatest(logits, n, k, out):
    """The k greatest of n logits with their experts to out, descending."""
    for e in range(n):
        value, j = ld_f32(logits + e * 4), min(e, k - 1)
        if e < k or value > ld_f32(out + j * SLOT + 8):
            while j > 0 and value > ld_f32(out + j * SLOT - SLOT + 8):
                _move(out + j * SLOT - SLOT, out + j * SLOT)
                j -= 1
            _put(out + j * SLOT, e, value)


@inner
def _exp(x):
    return lane0(exp8(sp_f32x8(x)))


@inner
def _weigh(logits, n, k, is_share, out):
    """Logits at out become weights. A logit that is no finite number, chosen or not, makes them all NaN."""
    top, total, odd = ld_f32(out + 8), f32(0.0), f32(0.0)
    for e in range(n):
        odd += ld_f32(logits + e * 4) * f32(0.0)
    for j in range(k):
        weight = _exp(ld_f32(out + j * SLOT + 8) - top)
        st_f32(out + j * SLOT + 8, weight)
        total += weight
    if is_share == 0:
        total = f32(0.0)
        for e in range(n):
            total += _exp(ld_f32(logits + e * 4) - top)
    for j in range(k):
        st_f32(out + j * SLOT + 8, ld_f32(out + j * SLOT + 8) / total + odd)


@inner
def _ascending(k, out):
    for i in range(1, k):
        expert, weight, j = ld_i64(out + i * SLOT), ld_f32(out + i * SLOT + 8), i
        while j > 0 and ld_i64(out + j * SLOT - SLOT) > expert:
            _move(out + j * SLOT - SLOT, out + j * SLOT)
            j -= 1
        _put(out + j * SLOT, expert, weight)


@op
def choose(o, tid, nth, st):
    """Up to REPLICATE rows thread 0 does all: `group` follows without a barrier there."""
    logits, ld, n, k = ld_i64(o + 8), ld_i64(o + 16) * 4, ld_i64(o + 24), ld_i64(o + 32)
    chosen, is_share, T = ld_i64(o + 40), ld_i64(o + 48), ld_i64(st + N_ROWS)
    if T <= REPLICATE and tid != 0:
        return
    first, end = rows_of(ld_i64(o + 120), T, nth, 0)
    while first < end:
        for t in range(first, end):
            out = chosen + t * k * SLOT
            _greatest(logits + t * ld, n, k, out)
            _weigh(logits + t * ld, n, k, is_share, out)
            _ascending(k, out)
        first, end = rows_of(ld_i64(o + 120), T, nth, end)


@inner
def _groups(choice, n, n_groups, used, of, scores):
    """Experts outside of the `used` best groups get NEVER."""
    size = n // n_groups
    for g in range(n_groups):
        best, second = NEVER, NEVER
        for e in range(g * size, (g + 1) * size):
            value = ld_f32(choice + e * 4)
            if value > best:
                best, second = value, best
            elif value > second:
                second = value
        st_f32(scores + g * 4, best + second if of > 1 else best)
    for _ in range(n_groups - used):
        worst, at = ld_f32(scores), 0
        for g in range(1, n_groups):
            value = ld_f32(scores + g * 4)
            if value == value and (value <= worst or worst != worst):  # of equal ones the higher goes
                worst, at = value, g
        st_f32(scores + at * 4, np.float32(np.nan))
        for e in range(at * size, (at + 1) * size):
            st_f32(choice + e * 4, NEVER)


@inner
def _sigmoid(x):
    return f32(1.0) / (f32(1.0) + _exp(-x))


@inner
def _share(values, k, is_share, out):
    """Values of the chosen ones become weights."""
    total = f32(0.0)
    for j in range(k):
        weight = ld_f32(values + ld_i64(out + j * SLOT) * 4)
        st_f32(out + j * SLOT + 8, weight)
        total += weight
    if is_share != 0:
        for j in range(k):
            st_f32(out + j * SLOT + 8, ld_f32(out + j * SLOT + 8) / (total + LEAST))


@op
def elect(o, tid, nth, st):
    """As `choose`, for routers that do more; logits are spoilt."""
    logits, ld, n, k = ld_i64(o + 8), ld_i64(o + 16) * 4, ld_i64(o + 24), ld_i64(o + 32)
    chosen, is_share, gate, favour = ld_i64(o + 40), ld_i64(o + 48), ld_i64(o + 56), ld_i64(o + 64)
    n_groups, used, of = ld_i64(o + 72), ld_i64(o + 80), ld_i64(o + 88)
    factor, T = ld_f32(o + 96), ld_i64(st + N_ROWS)
    if T <= REPLICATE and tid != 0:
        return
    first, end = rows_of(ld_i64(o + 120), T, nth, 0)
    while first < end:
        for t in range(first, end):
            values, out, odd = logits + t * ld, chosen + t * k * SLOT, f32(0.0)
            choice = values + n * 4
            for e in range(n):
                value = ld_f32(values + e * 4)
                odd += value * f32(0.0)
                if gate == SIGMOID:
                    value = _sigmoid(value)
                st_f32(values + e * 4, value)
                st_f32(choice + e * 4, value + (ld_f32(favour + e * 4) if favour != 0 else f32(0.0)))
            if used < n_groups:
                _groups(choice, n, n_groups, used, of, choice + n * 4)
            _greatest(choice, n, k, out)
            if gate == SIGMOID:
                _share(values, k, is_share, out)
            else:
                _weigh(values, n, k, is_share, out)
            for j in range(k):
                st_f32(out + j * SLOT + 8, ld_f32(out + j * SLOT + 8) * factor + odd)
            _ascending(k, out)
        first, end = rows_of(ld_i64(o + 120), T, nth, end)


@op
def group(o, tid, nth, st):
    """By thread 0, a sort by counting: 22 us for 512 rows of 8, in a layer of 130 ms."""
    if tid != 0:
        return
    chosen, n, k = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24)
    needed, slots, counts = ld_i64(o + 32), ld_i64(o + 40), ld_i64(o + 48)
    n_slots = ld_i64(st + N_ROWS) * k
    for e in range(n):
        st_i64(counts + e * 8, 0)
    for i in range(n_slots):
        at = counts + ld_i64(chosen + i * SLOT) * 8
        st_i64(at, ld_i64(at) + 1)
    entry, start = needed + 16, 0
    for e in range(n):
        count = ld_i64(counts + e * 8)
        st_i64(counts + e * 8, start)
        if count > 0:
            st_i64(entry, e)
            st_i64(entry + 8, start)
            entry += 16
            start += count
    st_i64(entry + 8, start)
    st_i64(needed, (entry - needed) // 16 - 1)
    for i in range(n_slots):
        at = counts + ld_i64(chosen + i * SLOT) * 8
        s = ld_i64(at)
        _put(slots + s * SLOT, i // k, ld_f32(chosen + i * SLOT + 8))
        st_i64(at, s + 1)
