"""Quantisers of the formats with sub-scales, five bits or three values, simple and not the best. Not here: decoding.

Each takes float32 of any shape whose rows fill whole blocks and gives the blocks' bytes (layouts: engine/quants/).
"""

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]


def _over(x: NDArray, d: NDArray) -> NDArray:
    """x / d, 0 where d is 0."""
    return np.divide(x, d, out=np.zeros(np.broadcast_shapes(x.shape, d.shape), np.float32), where=d != 0)


def _whole(x: NDArray, low: int, high: int) -> NDArray:
    return np.clip(np.rint(x), low, high).astype(np.int64)


def _bytes(*parts: NDArray) -> bytes:
    return np.concatenate([np.ascontiguousarray(p).view(np.uint8).reshape(len(p), -1) for p in parts], 1).tobytes()


def _half(x: NDArray) -> NDArray:
    return x.astype(np.float16)


def _fives(q: NDArray) -> tuple[U8, U8]:
    """(blocks, 32) -> four bytes of top bits, sixteen of nibbles."""
    low = (q & 15).astype(np.uint8)
    return np.packbits((q >> 4).astype(np.uint8), axis=1, bitorder="little"), low[:, :16] | low[:, 16:] << 4


def q5_0(x: F32) -> bytes:
    x = x.reshape(-1, 32)
    d = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1) / np.float32(-16)
    return _bytes(_half(d), *_fives(_whole(_over(x, d) + 16, 0, 31)))


def q5_1(x: F32) -> bytes:
    x = x.reshape(-1, 32)
    m = x.min(1, keepdims=True)
    d = (x.max(1, keepdims=True) - m) / np.float32(31)
    return _bytes(_half(d), _half(m), *_fives(_whole(_over(x - m, d), 0, 31)))


def _with_minima(x: F32, most: int) -> tuple[NDArray, U8, NDArray]:
    """d and dmin (blocks, 2), the twelve scale bytes, and q (blocks, 8, 32)."""
    x = x.reshape(-1, 8, 32)
    low = np.minimum(x.min(2), 0)
    step = (x.max(2) - low) / most
    tops = np.stack([step.max(1), (-low).max(1)], 1).astype(np.float32)
    d = _half(tops / 63).astype(np.float32)
    sc, m = _whole(_over(step, d[:, :1]), 0, 63), _whole(_over(-low, d[:, 1:]), 0, 63)
    scale, least = (d[:, :1] * sc)[..., None], (d[:, 1:] * m)[..., None]
    q = _whole(_over(x + least, scale), 0, most)
    sc, m = sc.astype(np.uint8), m.astype(np.uint8)
    first = [v[:, :4] | (v[:, 4:] >> 4) << 6 for v in (sc, m)]
    return _half(d), np.concatenate([*first, sc[:, 4:] & 15 | (m[:, 4:] & 15) << 4], 1), q


def _paired(q: NDArray) -> U8:
    """(blocks, 8, 32) -> nibbles: sub-block 2i low, 2i + 1 high."""
    low = (q & 15).astype(np.uint8)
    return low[:, 0::2] | low[:, 1::2] << 4


def q4_k(x: F32) -> bytes:
    d, scales, q = _with_minima(x, 15)
    return _bytes(d, scales, _paired(q))


def q5_k(x: F32) -> bytes:
    d, scales, q = _with_minima(x, 31)
    tops = np.bitwise_or.reduce(((q >> 4) << np.arange(8)[:, None]).astype(np.uint8), 1)
    return _bytes(d, scales, tops, _paired(q))


def q6_k(x: F32) -> bytes:
    x = x.reshape(-1, 16, 16)
    step = np.take_along_axis(x, np.abs(x).argmax(2)[..., None], 2)[..., 0] / np.float32(-32)
    d = _half(np.abs(step).max(1, keepdims=True) / 127).astype(np.float32)
    sc = _whole(_over(step, d), -127, 127)
    q = (_whole(_over(x, (d * sc)[..., None]), -32, 31) + 32).reshape(-1, 2, 4, 32)
    low, top = (q & 15).astype(np.uint8), (q >> 4).astype(np.uint8)
    ql = low[:, :, :2] | low[:, :, 2:] << 4
    qh = top[:, :, 0] | top[:, :, 1] << 2 | top[:, :, 2] << 4 | top[:, :, 3] << 6
    return _bytes(ql, qh, sc.astype(np.int8), _half(d))


def tq2_0(x: F32) -> bytes:
    x = x.reshape(-1, 256)
    d = np.abs(x).max(1, keepdims=True)
    q = (_whole(_over(x, d), -1, 1) + 1).astype(np.uint8).reshape(-1, 2, 4, 32)
    return _bytes(q[:, :, 0] | q[:, :, 1] << 2 | q[:, :, 2] << 4 | q[:, :, 3] << 6, _half(d))
