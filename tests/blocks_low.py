"""Quantisers of the two- and three-bit formats, of sixteen named values and of five to a byte. Not here: decoding.

Simple and not the best, as in blocks_k.py, whose helpers they use.
"""

import numpy as np
from numpy.typing import NDArray

from tests.blocks_k import F32, U8, _bytes, _half, _over, _whole
from tests.engine.quants.codes import E2M1, IQ4


def _extreme(x: NDArray) -> NDArray:
    """The value of greatest size along the last axis."""
    return np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)[..., 0]


def _nearest(x: NDArray, values: NDArray) -> U8:
    """The index of the nearest of sixteen values."""
    order = np.argsort(values, kind="stable")
    between = (values[order][1:] + values[order][:-1]) / 2
    return order[np.searchsorted(between, x)].astype(np.uint8)


def _nibbles(q: U8) -> U8:
    """(..., 32) -> (..., 16): the first half low, the second high."""
    return q[..., :16] | q[..., 16:] << 4


def _fours(q: NDArray) -> U8:
    """(blocks, 256) of 0..3 -> (blocks, 64): number 128h + 32k + l in bits 2k of byte 32h + l."""
    q = q.astype(np.uint8).reshape(-1, 2, 4, 32)
    return (q[:, :, 0] | q[:, :, 1] << 2 | q[:, :, 2] << 4 | q[:, :, 3] << 6).reshape(-1, 64)


def q2_k(x: F32) -> bytes:
    x = x.reshape(-1, 16, 16)
    low = np.minimum(x.min(2), 0)
    step = (x.max(2) - low) / 3
    d, dmin = (_half(v.max(1, keepdims=True) / 15).astype(np.float32) for v in (step, -low))
    sc, m = _whole(_over(step, d), 0, 15), _whole(_over(-low, dmin), 0, 15)
    q = _whole(_over(x + (dmin * m)[..., None], (d * sc)[..., None]), 0, 3)
    return _bytes((sc | m << 4).astype(np.uint8), _fours(q.reshape(-1, 256)), _half(d), _half(dmin))


def q3_k(x: F32) -> bytes:
    x = x.reshape(-1, 16, 16)
    step = _extreme(x) / np.float32(-4)
    d = _half(np.abs(step).max(1, keepdims=True) / 31).astype(np.float32)
    sc = _whole(_over(step, d), -31, 31)
    q = (_whole(_over(x, (d * sc)[..., None]), -4, 3) + 4).reshape(-1, 256)
    tops = np.bitwise_or.reduce((q.reshape(-1, 8, 32) >> 2) << np.arange(8)[:, None], 1).astype(np.uint8)
    six = (sc + 32).astype(np.uint8)
    low, high = six & 15, (six >> 4).reshape(-1, 4, 4)
    packed = high[:, 0] | high[:, 1] << 2 | high[:, 2] << 4 | high[:, 3] << 6
    return _bytes(tops, _fours(q & 3), low[:, :8] | low[:, 8:] << 4, packed, _half(d))


def iq4_nl(x: F32) -> bytes:
    x = x.reshape(-1, 32)
    d = _half(_extreme(x)[:, None] / np.float32(-127)).astype(np.float32)
    return _bytes(_half(d), _nibbles(_nearest(_over(x, d), IQ4)))


def iq4_xs(x: F32) -> bytes:
    x = x.reshape(-1, 8, 32)
    step = _extreme(x) / np.float32(-127)
    d = _half(np.abs(step).max(1, keepdims=True) / 31).astype(np.float32)
    sc = _whole(_over(step, d), -31, 31)
    q = _nearest(_over(x, (d * sc)[..., None]), IQ4)
    six = (sc + 32).astype(np.uint16)
    tops = np.bitwise_or.reduce((six >> 4) << np.arange(0, 16, 2).astype(np.uint16), 1)[:, None]
    low = (six & 15).astype(np.uint8)
    return _bytes(_half(d), tops.astype(np.uint16), low[:, 0::2] | low[:, 1::2] << 4, _nibbles(q).reshape(-1, 128))


def mxfp4(x: F32) -> bytes:
    x = x.reshape(-1, 32)
    top = np.abs(x).max(1, keepdims=True)
    e = np.where(top > 0, np.frexp(top)[1] - 1 - 2 + 127, 0).astype(np.uint8)
    d = np.ldexp(np.float32(1), e.astype(np.int64) - 128).astype(np.float32)
    return _bytes(e, _nibbles(_nearest(x / d, E2M1)))


def tq1_0(x: F32) -> bytes:
    x = x.reshape(-1, 256)
    d = np.abs(x).max(1, keepdims=True)
    q = _whole(_over(x, d), -1, 1) + 1
    parts = []
    for start, count, width in ((0, 5, 32), (160, 5, 16), (240, 4, 4)):
        digits = q[:, start : start + count * width].reshape(-1, count, width)
        number = (digits * 3 ** (4 - np.arange(count))[:, None]).sum(1)
        parts.append(((number * 256 + 242) // 243).astype(np.uint8))
    return _bytes(*parts, _half(d))
