"""Numpy twins of the block formats that twins.py leaves out: bytes to whole numbers and scales. Not here: products.

Each takes (rows, blocks, bytes) and gives d, m (rows, 32-blocks) and whole numbers q, k (rows, 32-blocks, 32) with
w = d * q + m * k. Scales that are whole numbers stand in q and k, as they do in the kernels.
"""

from collections.abc import Callable

import numpy as np

F32, I32 = np.float32, np.int32
Codes = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], I32)
E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], I32)
TWOS = np.array([0, 2, 4, 6], np.uint8)


def halves(raw: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(raw).view(np.float16).astype(F32)[..., 0]


def flat(a: np.ndarray) -> np.ndarray:
    """(rows, blocks, sub-blocks, ...) -> (rows, all sub-blocks, ...)."""
    return a.reshape(len(a), -1, *a.shape[3:])


def nibbles(raw: np.ndarray) -> np.ndarray:
    """(..., n) bytes -> (..., 2n): all low nibbles, then all high ones."""
    return np.concatenate([raw & 15, raw >> 4], -1).astype(I32)


def two_bits(raw: np.ndarray) -> np.ndarray:
    """(rows, blocks, 64) -> (rows, blocks, 8, 32): bits 2k of byte 32h + l are number 128h + 32k + l."""
    q = raw.reshape(*raw.shape[:2], 2, 1, 32) >> TWOS[:, None] & 3
    return q.reshape(*raw.shape[:2], 8, 32).astype(I32)


def only(d: np.ndarray, q: np.ndarray) -> Codes:
    """Without m: (rows, 32-blocks), (rows, 32-blocks, 32)."""
    return d, np.zeros_like(d), q, np.zeros_like(q)


def by_sixteen(scales: np.ndarray) -> np.ndarray:
    """(rows, blocks, 16) -> (rows, blocks, 8, 32)."""
    return scales.astype(I32).repeat(16, -1).reshape(*scales.shape[:2], 8, 32)


def q2_k(raw: np.ndarray) -> Codes:
    both = raw[..., :16]
    q, k = two_bits(raw[..., 16:80]) * by_sixteen(both & 15), by_sixteen(both >> 4)
    d, dmin = halves(raw[..., 80:82]).repeat(8, -1), halves(raw[..., 82:84]).repeat(8, -1)
    return d, F32(0) - dmin, flat(q), flat(k)


def q3_k(raw: np.ndarray) -> Codes:
    low = nibbles(raw[..., 96:104])
    top = (raw[..., None, 104:108] >> TWOS[:, None] & 3).reshape(*raw.shape[:2], 16).astype(I32)
    third = np.stack([raw[..., :32] >> j & 1 for j in range(8)], -2).astype(I32)
    q = (two_bits(raw[..., 32:96]) + 4 * third - 4) * by_sixteen(low + 16 * top - 32)
    return only(halves(raw[..., 108:110]).repeat(8, -1), flat(q))


def iq4_nl(raw: np.ndarray) -> Codes:
    return only(halves(raw[..., :2]), IQ4[nibbles(raw[..., 2:])])


def iq4_xs(raw: np.ndarray) -> Codes:
    tops = np.ascontiguousarray(raw[..., 2:4]).view(np.uint16) >> np.arange(0, 16, 2).astype(np.uint16) & 3
    low = np.stack([raw[..., 4 + j // 2] >> 4 * (j % 2) & 15 for j in range(8)], -1)
    sc = low.astype(I32) + 16 * tops.astype(I32) - 32
    q = IQ4[nibbles(raw[..., 8:].reshape(*raw.shape[:2], 8, 16))]
    return only(flat(halves(raw[..., :2])[..., None] * sc.astype(F32)), flat(q))


def mxfp4(raw: np.ndarray) -> Codes:
    return only(np.ldexp(F32(1), raw[..., 0].astype(I32) - 128).astype(F32), E2M1[nibbles(raw[..., 1:])])


def tq1_0(raw: np.ndarray) -> Codes:
    def five(part: np.ndarray, count: int) -> np.ndarray:
        powers = (3 ** np.arange(count))[:, None]
        q = part[..., None, :].astype(I32) * powers % 256 * 3 // 256
        return q.reshape(*part.shape[:2], -1)

    q = np.concatenate([five(raw[..., :32], 5), five(raw[..., 32:48], 5), five(raw[..., 48:52], 4)], -1) - 1
    return only(halves(raw[..., 52:54]).repeat(8, -1), flat(q.reshape(*raw.shape[:2], 8, 32)))


def i2_s(raw: np.ndarray) -> Codes:
    """Blocks as they are in memory."""
    d = np.ascontiguousarray(raw[..., :4]).view(F32)[..., 0].repeat(8, -1)
    q = flat(two_bits(raw[..., 4:]))
    return d, F32(0) - d, q, np.ones_like(q)


CODES: dict[str, Callable[[np.ndarray], Codes]] = {
    "Q2_K": q2_k, "Q3_K": q3_k, "IQ4_NL": iq4_nl, "IQ4_XS": iq4_xs, "MXFP4": mxfp4, "TQ1_0": tq1_0,
    "I2_S": i2_s,
}  # fmt: skip
