"""Logits to a token, as an op: penalties, bias, top-k, typical, top-p, min-p, temperature, one draw. Not here: settings
and the window of past tokens (engine/sampling.py), their layout (sampler.py).

Order and meaning are llama.cpp's: each sampler sees what the one before left, with probabilities made anew; at least
one token always stays. Equal logits: the lower id comes first.

Logits are read once for the greatest of every 128 (topk.py); the samplers then look only into the blocks that matter.

The draw is a hash of (seed, position): same seed, same text, whatever else the step carries.
"""

import math
from typing import Any

import numpy as np

from engine.kernels.jit import inner, op
from engine.kernels.sampler import BIAS, GREEDY_BELOW, NOT_FINITE, OFFSET, PENALTY, TOP
from engine.kernels.simd import (
    I64,
    abs_f32x8,
    add_f32x8,
    div_f32x8,
    i64,
    ir,
    ld_f32,
    ld_f32x8,
    ld_i32,
    ld_i64,
    make,
    mul_f32x8,
    read,
    sp_f32x8,
    st_f32,
    st_f32x8,
    st_i32,
    st_i64,
    sub_f32x8,
    sum_f32x8,
    types,
    write,
    z_f32x8,
)
from engine.kernels.step import ERROR, N_OUT, OUT_ROWS, POSITIONS, SAMPLE_NS, SAMPLERS
from engine.kernels.sync import atomic_add, clock_ns
from engine.kernels.topk import BLOCK, LOWEST, NOTHING, collect, heapify, pad, pop, scan, top_k
from engine.kernels.vmath import exp8, lane0

(
    SEED, TOP_K, TEMPERATURE, TOP_P, MIN_P, TYPICAL_P, REPEAT, PRESENCE, FREQUENCY, N_PENALTIES, PENALTIES, N_BIASES,
    BIASES, N_TOP, TOPS, TOKEN, LOGPROB, MASK,
) = OFFSET.values()  # fmt: skip
PENALTY_BYTES, BIAS_BYTES, TOP_BYTES = PENALTY.itemsize, BIAS.itemsize, TOP.itemsize
_F64 = ir.DoubleType()


def scratch_bytes(n_vocab: int) -> int:
    """Scratch of one thread: greatest logits per block, candidates (logit, id), their weights."""
    return (_round8(n_vocab // BLOCK + 1) + 3 * _round8(n_vocab) + 24) * 4


def _round8(n: int) -> int:
    return (n + 7) // 8 * 8


def _mix64(b: Any, z: Any) -> Any:
    """splitmix64's finaliser."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        z = b.mul(b.xor(z, b.lshr(z, ir.Constant(I64, shift))), ir.Constant(I64, factor))
    return z


def _uniform(b: Any, seed: Any, counter: Any) -> Any:
    golden = ir.Constant(I64, 0x9E3779B97F4A7C15)
    z = _mix64(b, b.add(_mix64(b, b.add(seed, golden)), b.mul(counter, golden)))
    return b.fmul(b.uitofp(b.lshr(z, ir.Constant(I64, 11)), _F64), ir.Constant(_F64, 2.0**-53))


uniform = make(types.float64, (i64, i64), _uniform)  # [0, 1) from (seed, position)
ld_f64 = make(types.float64, (i64,), lambda b, p: read(b, p, _F64))
st_f64 = make(types.void, (i64, types.float64), write)


@inner
def _exp(x):
    return np.float64(lane0(exp8(sp_f32x8(x))))


@inner
def _exp_sum(x, n, top):
    """Sum of e^(x - top) over n floats, padded here; float32 inside blocks, float64 over them."""
    total, at = 0.0, sp_f32x8(top)
    pad(x, n)
    for start in range(0, n * 4, BLOCK * 4):
        part = z_f32x8()
        for i in range(start, min(n * 4, start + BLOCK * 4), 32):
            part = add_f32x8(part, exp8(sub_f32x8(ld_f32x8(x + i), at)))
        total += np.float64(sum_f32x8(part))
    return total


@inner
def _greatest(keys, n):
    top = LOWEST
    for i in range(n):
        if ld_f32(keys + i * 4) > top:
            top = ld_f32(keys + i * 4)
    return top


@inner
def _typical(x, typical_p, keys, ids, m, work):
    """Keep the candidates whose surprise is nearest to the expected one, until they hold typical_p."""
    top = _greatest(keys, m)
    total, at, mean = _exp_sum(keys, m, top), sp_f32x8(top), 0.0
    for i in range(0, m * 4, 32):
        d = sub_f32x8(ld_f32x8(keys + i), at)
        e = exp8(d)
        st_f32x8(work + i, mul_f32x8(e, d))
    for i in range(m):
        mean += np.float64(ld_f32(work + i * 4))
    # entropy = ln total - mean / total, surprise = ln total - d: only their difference counts
    expected = sp_f32x8(np.float32(mean / total))
    for i in range(0, m * 4, 32):
        distance = abs_f32x8(sub_f32x8(sub_f32x8(ld_f32x8(keys + i), at), expected))
        st_f32x8(work + i, sub_f32x8(z_f32x8(), distance))
    heapify(work, ids, m)
    n, held = m, 0.0
    while n > 0 and held <= typical_p * total:
        pop(work, ids, n)
        n -= 1
        held += _exp(ld_f32(x + ld_i32(ids + n * 4) * 4) - top)
    for i in range(n, m):
        token = ld_i32(ids + i * 4)
        st_i32(ids + (i - n) * 4, token)
        st_f32(keys + (i - n) * 4, ld_f32(x + token * 4))
    return m - n


@inner
def _draw(keys, ids, start, end, temperature, u, work):
    """One of the candidates start..end-1 with the chances softmax(logit / temperature) gives them."""
    top, hot, total = _greatest(keys + start * 4, end - start), sp_f32x8(np.float32(temperature)), 0.0
    n = end - start
    for i in range(0, n * 4, 32):
        d = sub_f32x8(ld_f32x8(keys + start * 4 + i), sp_f32x8(top))
        st_f32x8(work + i, exp8(div_f32x8(d, hot)))
    for i in range(n):
        total += np.float64(ld_f32(work + i * 4))
    reached, pick = 0.0, 0
    for i in range(n):
        w = np.float64(ld_f32(work + i * 4))
        reached += w
        if w > 0.0:
            pick = i
        if reached > u * total:
            break
    return np.int64(ld_i32(ids + (start + pick) * 4))


@inner
def _argmax(x, n, top, blocks):
    """The lowest id with the greatest logit."""
    block = 0
    while ld_f32(blocks + block * 4) != top:
        block += 1
    i = block * BLOCK
    while ld_f32(x + i * 4) != top:
        i += 1
    return i


@inner
def _choose(r, x, n, top, u, blocks, keys, ids, work):
    """The samplers in order, on finite logits with their greatest per block."""
    temperature, k = ld_f64(r + TEMPERATURE), ld_i64(r + TOP_K)
    if temperature < GREEDY_BELOW:
        return _argmax(x, n, top, blocks)
    top_p, min_p, typical_p = ld_f64(r + TOP_P), ld_f64(r + MIN_P), ld_f64(r + TYPICAL_P)
    least = top + np.float32(math.log(min_p)) if min_p > 0.0 else NOTHING
    if 0 < k < n:
        m = top_k(x, n, k, blocks, keys, ids)
        total = _exp_sum(keys, m, top) if top_p < 1.0 else 0.0
    else:  # min_p looks at the greatest alone, so it may go before top_p, which only needs the whole sum
        m = collect(x, n, blocks, least if typical_p >= 1.0 else NOTHING, keys, ids)
        total = _exp_sum(x, n, top) if top_p < 1.0 else 0.0
    if typical_p < 1.0:
        m = _typical(x, typical_p, keys, ids, m, work)
        top = _greatest(keys, m)
        total = _exp_sum(keys, m, top)
        least = top + np.float32(math.log(min_p)) if min_p > 0.0 else NOTHING
    start = 0
    if top_p < 1.0:
        heapify(keys, ids, m)
        start, held = m, 0.0
        while start > 0:
            pop(keys, ids, start)
            start -= 1
            held += _exp(ld_f32(keys + start * 4) - top)
            if held >= top_p * total:
                break
    kept = start
    for i in range(start, m):
        if ld_f32(keys + i * 4) >= least:
            st_f32(keys + kept * 4, ld_f32(keys + i * 4))
            st_i32(ids + kept * 4, ld_i32(ids + i * 4))
            kept += 1
    return _draw(keys, ids, start, kept, temperature, u, work)


@inner
def _penalise(r, x):
    """Repeat: divide or multiply once; presence and frequency: by the count of generated ones. Old logits are saved."""
    repeat = np.float32(ld_f64(r + REPEAT))
    presence, frequency = np.float32(ld_f64(r + PRESENCE)), np.float32(ld_f64(r + FREQUENCY))
    for i in range(ld_i64(r + N_PENALTIES)):
        entry = ld_i64(r + PENALTIES) + i * PENALTY_BYTES
        p, count = x + ld_i32(entry) * 4, ld_i32(entry + 4)
        logit = ld_f32(p)
        st_f32(entry + 12, logit)
        logit = logit / repeat if logit > np.float32(0.0) else logit * repeat
        if count > 0:
            logit -= np.float32(count) * frequency + presence
        st_f32(p, logit)
    for i in range(ld_i64(r + N_BIASES)):
        entry = ld_i64(r + BIASES) + i * BIAS_BYTES
        p = x + ld_i32(entry) * 4
        st_f32(entry + 8, ld_f32(p))
        st_f32(p, ld_f32(p) + ld_f32(entry + 4))


@inner
def _forbid(mask, x, n):
    """The lowest of logits for every token without its bit; penalties came before, so that none multiplies it."""
    for i in range(0, n, 32):
        bits = ld_i32(mask + i // 8)
        if bits != -1:
            for j in range(i, min(n, i + 32)):
                if (bits >> (j - i)) & 1 == 0:
                    st_f32(x + j * 4, LOWEST)


@inner
def _restore(r, x):
    """Undo _penalise, last first."""
    for i in range(ld_i64(r + N_BIASES)):
        entry = ld_i64(r + BIASES) + i * BIAS_BYTES
        st_f32(x + ld_i32(entry) * 4, ld_f32(entry + 8))
    for i in range(ld_i64(r + N_PENALTIES)):
        entry = ld_i64(r + PENALTIES) + i * PENALTY_BYTES
        st_f32(x + ld_i32(entry) * 4, ld_f32(entry + 12))


@inner
def _list_top(r, x, n, blocks, keys, ids, log_sum):
    """The n_top likeliest tokens with their log-probabilities."""
    m = min(n, ld_i64(r + N_TOP))
    if m > 0:
        m = top_k(x, n, m, blocks, keys, ids)
        heapify(keys, ids, m)
        for i in range(m):
            pop(keys, ids, m - i)
            entry = ld_i64(r + TOPS) + i * TOP_BYTES
            st_i32(entry, ld_i32(ids + (m - i - 1) * 4))
            st_f32(entry + 4, np.float32(np.float64(ld_f32(keys + (m - i - 1) * 4)) - log_sum))


@inner
def _sample(r, x, n, u, blocks, keys, ids, work):
    """Fill record r from n logits at x; returns whether they were finite. Logits are as before afterwards,
    but for those of forbidden tokens."""
    n8, log_sum = (n + 7) // 8 * 8, 0.0
    for i in range(n, n8):
        st_f32(x + i * 4, LOWEST)
    top = scan(x, n8, blocks)
    if top != top:
        st_i64(r + TOKEN, -1)
        return False
    if ld_i64(r + N_TOP) >= 0:
        log_sum = np.float64(top) + math.log(_exp_sum(x, n8, top))
        _list_top(r, x, n, blocks, keys, ids, log_sum)
    if ld_i64(r + N_PENALTIES) + ld_i64(r + N_BIASES) > 0:
        _penalise(r, x)
        top = scan(x, n8, blocks)
        if top != top:
            _restore(r, x)
            st_i64(r + TOKEN, -1)
            return False
    if ld_i64(r + MASK) != 0:
        _forbid(ld_i64(r + MASK), x, n)
        top = scan(x, n8, blocks)
    token = _choose(r, x, n, top, u, blocks, keys, ids, work)
    _restore(r, x)
    st_i64(r + TOKEN, token)
    st_f64(r + LOGPROB, np.float64(ld_f32(x + token * 4)) - log_sum if ld_i64(r + N_TOP) >= 0 else 0.0)
    return True


@op
def sample(o, tid, nth, st):
    """A token for every output row that has a sampler.

    words: 1 logits f32 [n_out][ld]; 2 ld (floats, at least n_vocab rounded up to 8: the lanes behind are overwritten);
    3 n_vocab; 4 scratch (scratch_bytes(n_vocab) a thread); 15 counter.
    """
    n_vocab, counter, n_out = ld_i64(o + 24), ld_i64(o + 120), ld_i64(st + N_OUT)
    n8, n_blocks = (n_vocab + 7) // 8 * 8, (n_vocab // BLOCK + 8) // 8 * 8
    blocks = ld_i64(o + 32) + tid * (n_blocks + 3 * n8 + 24) * 4
    keys = blocks + n_blocks * 4
    ids = keys + (n8 + 8) * 4
    work = ids + (n8 + 8) * 4
    while True:
        j = atomic_add(counter, 1)
        if j >= n_out:
            return
        begin = clock_ns()
        r = ld_i64(ld_i64(st + SAMPLERS) + j * 8)
        if r != 0:
            row = ld_i64(ld_i64(st + OUT_ROWS) + j * 8)
            u = uniform(ld_i64(r + SEED), ld_i64(ld_i64(st + POSITIONS) + row * 8))
            logits = ld_i64(o + 8) + j * ld_i64(o + 16) * 4
            if not _sample(r, logits, n_vocab, u, blocks, keys, ids, work):
                st_i64(st + ERROR, NOT_FINITE)
        atomic_add(st + SAMPLE_NS, clock_ns() - begin)
