"""The greatest of many floats: per block, the k-th, the top k, one after the other. Not here: what they are for.

One pass keeps the greatest of every 128. The k-th greatest of those bounds the k-th greatest of all, so a second look
at k blocks finds the top k. Candidates are pairs of arrays, keys (f32) and ids (i32); of equal keys the lower id comes
first. Sorting is a heap that is popped only as far as somebody asks.
"""

from typing import Any

import numpy as np

from engine.kernels.jit import inner
from engine.kernels.simd import (
    I32,
    I64,
    _fma,
    _reduce,
    const,
    f32,
    f32x8,
    i32,
    i32_of,
    i32x8,
    i64,
    ir,
    ld_f32,
    ld_f32x8,
    ld_i32,
    make,
    read,
    sp_f32x8,
    splat,
    st_f32,
    st_f32x8,
    st_i32,
    st_i32x8,
    sum_f32x8,
    sum_i32x8,
    z_f32x8,
    z_i32x8,
)
from engine.kernels.vmath import _greater

BLOCK = 128
LOWEST = np.float32(-3e38)
NOTHING = np.float32(-np.inf)
_KEY_LOW, _KEY_HIGH = -0x7F800001, 0x7F800000  # -inf and inf as ordered integers


def _scan_block(b: Any, p: Any) -> Any:
    """The greatest of 128 floats; NaN if one of them is NaN or infinite (x * 0 is 0 for all others)."""
    top, odd = [const(f32x8, float(LOWEST))] * 4, [const(f32x8, 0.0)] * 4
    for i in range(BLOCK // 8):
        x = read(b, b.add(p, ir.Constant(I64, i * 32)), f32x8.ir)
        top[i % 4] = _greater(b, x, top[i % 4])
        odd[i % 4] = _fma(b, x, const(f32x8, 0.0), odd[i % 4])
    top4 = _greater(b, _greater(b, top[0], top[1]), _greater(b, top[2], top[3]))
    odd4 = b.fadd(b.fadd(odd[0], odd[1]), b.fadd(odd[2], odd[3]))
    return b.fadd(_reduce(b, top4, _greater), _reduce(b, odd4, lambda b, x, y: b.fadd(x, y)))


def _from_key(b: Any, key: Any) -> Any:
    """Integers in the order of floats -> the float."""
    k = b.trunc(key, I32)
    return b.bitcast(b.xor(k, b.and_(b.ashr(k, ir.Constant(I32, 31)), ir.Constant(I32, 0x7FFFFFFF))), ir.FloatType())


scan_block = make(f32, (i64,), _scan_block)
fold_bad = make(f32x8, (f32x8, f32x8), lambda b, x, z: _fma(b, x, const(f32x8, 0.0), z))
greater_of = make(f32x8, (f32x8, f32x8), _greater)
top_lane = make(f32, (f32x8,), lambda b, v: _reduce(b, v, _greater))
from_key = make(f32, (i64,), _from_key)
count_ge = make(  # counter - (x >= limit), per lane
    i32x8, (i32x8, f32x8, f32x8), lambda b, n, x, limit: b.sub(n, b.sext(b.fcmp_ordered(">=", x, limit), i32x8.ir))
)
lanes_ge = make(  # bit i: lane i of x >= limit
    i64, (f32x8, f32x8),
    lambda b, x, limit: b.zext(b.bitcast(b.fcmp_ordered(">=", x, limit), ir.IntType(8)), I64),
)  # fmt: skip
iota = make(i32x8, (i32,), lambda b, n: b.add(splat(b, n, i32x8), ir.Constant(i32x8.ir, list(range(8)))))


@inner
def scan(x, n, blocks):
    """The greatest of n floats (a multiple of 8) and, in blocks, of every 128; NaN if one is NaN or infinite."""
    top, i, block = LOWEST, 0, 0
    while i < n:
        if i + BLOCK <= n:
            t = scan_block(x + i * 4)
        else:
            v, bad = sp_f32x8(LOWEST), z_f32x8()
            for j in range(i, n, 8):
                v, bad = greater_of(ld_f32x8(x + j * 4), v), fold_bad(ld_f32x8(x + j * 4), bad)
            t = top_lane(v) + sum_f32x8(bad)
        st_f32(blocks + block * 4, t)
        if top == top and not t <= top:  # greater, or NaN, which stays
            top = t
        i, block = i + BLOCK, block + 1
    return top


@inner
def pad(p, n):
    """Up to seven floats that are never wanted, behind n."""
    while n % 8 != 0:
        st_f32(p + n * 4, NOTHING)
        n += 1


@inner
def _kth(p, n, k):
    """The k-th greatest of n >= k floats: bisection over the floats' order, counting with vectors. Pads p to 8."""
    pad(p, n)
    low, high = _KEY_LOW, _KEY_HIGH
    while low < high:
        middle = (low + high + 1) >> 1
        limit, count = sp_f32x8(from_key(middle)), z_i32x8()
        for i in range(0, n * 4, 32):
            count = count_ge(count, ld_f32x8(p + i), limit)
        if sum_i32x8(count) >= k:
            low = middle
        else:
            high = middle - 1
    return from_key(low)


@inner
def collect(x, n, blocks, least, keys, ids):
    """Logits >= least and their ids, ids ascending; returns how many."""
    m = 0
    if least == NOTHING:
        for i in range(0, n, 8):
            st_f32x8(keys + i * 4, ld_f32x8(x + i * 4))
            st_i32x8(ids + i * 4, iota(i32_of(i)))
        return n
    limit = sp_f32x8(least)
    for block in range((n + BLOCK - 1) // BLOCK):
        if ld_f32(blocks + block * 4) >= least:
            for i in range(block * BLOCK, min(n, block * BLOCK + BLOCK), 8):
                lanes = lanes_ge(ld_f32x8(x + i * 4), limit)
                j = i
                while lanes != 0:
                    if lanes & 1 and j < n:
                        st_f32(keys + m * 4, ld_f32(x + j * 4))
                        st_i32(ids + m * 4, i32_of(j))
                        m += 1
                    lanes >>= 1
                    j += 1
    return m


@inner
def top_k(x, n, k, blocks, keys, ids):
    """The k greatest of n logits, ids ascending; of equals at the border the lower ids."""
    n_blocks = (n + BLOCK - 1) // BLOCK
    least = _kth(blocks, n_blocks, k) if k <= n_blocks else NOTHING
    m = collect(x, n, blocks, least, keys, ids)
    if m <= k:
        return m
    border, above = _kth(keys, m, k), 0
    for i in range(m):
        if ld_f32(keys + i * 4) > border:
            above += 1
    equals, kept = k - above, 0
    for i in range(m):
        key = ld_f32(keys + i * 4)
        if key < border or (key == border and equals == 0):
            continue
        if key == border:
            equals -= 1
        st_f32(keys + kept * 4, key)
        st_i32(ids + kept * 4, ld_i32(ids + i * 4))
        kept += 1
    return kept


@inner
def _sift(keys, ids, i, n):
    """Let entry i sink in a heap of n whose root is the greatest key, lowest id."""
    key, token = ld_f32(keys + i * 4), ld_i32(ids + i * 4)
    while 2 * i + 1 < n:
        child = 2 * i + 1
        a, a_id = ld_f32(keys + child * 4), ld_i32(ids + child * 4)
        if child + 1 < n:
            b, b_id = ld_f32(keys + child * 4 + 4), ld_i32(ids + child * 4 + 4)
            if b > a or (b == a and b_id < a_id):
                child, a, a_id = child + 1, b, b_id
        if key > a or (key == a and token < a_id):
            break
        st_f32(keys + i * 4, a)
        st_i32(ids + i * 4, a_id)
        i = child
    st_f32(keys + i * 4, key)
    st_i32(ids + i * 4, token)


@inner
def heapify(keys, ids, n):
    for i in range(n // 2 - 1, -1, -1):
        _sift(keys, ids, i, n)


@inner
def pop(keys, ids, n):
    """Move the root of a heap of n to place n - 1, the rest is a heap of n - 1."""
    key, token = ld_f32(keys), ld_i32(ids)
    st_f32(keys, ld_f32(keys + n * 4 - 4))
    st_i32(ids, ld_i32(ids + n * 4 - 4))
    st_f32(keys + n * 4 - 4, key)
    st_i32(ids + n * 4 - 4, token)
    _sift(keys, ids, 0, n - 1)
