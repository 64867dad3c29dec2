"""Quantisers of the formats whose weights stand in tables: the nearest entry at a simple scale. Not here: decoding."""

import numpy as np
from numpy.typing import NDArray

from tests.blocks_k import F32, U8, _bytes, _half, _over, _whole
from tests.engine.quants.grid_codes import GRIDS


def _scales(x: NDArray, group: int, most: float, part: float, top: int) -> tuple[F32, NDArray, NDArray]:
    """d (blocks, 1), s (blocks, groups) and x over its scale (blocks, 256); values reach `most`, s is 0..top."""
    groups = x.reshape(-1, 256 // group, group)
    step = np.abs(groups).max(2) / most
    d = _half(step.max(1, keepdims=True) / (part * (2 * top + 1))).astype(np.float32)
    s = _whole((_over(step, d * np.float32(part)) - 1) / 2, 0, top)
    return d, s, _over(groups, (d * part * (2 * s + 1))[..., None]).reshape(-1, 256)


def _nearest(y: NDArray, grid: NDArray) -> NDArray:
    """(blocks, 256) -> the indices of the nearest entries (blocks, 256 / width)."""
    width = grid.shape[1]
    y = y.reshape(-1, width).astype(np.float32)
    near = [(((part @ grid.T) * -2) + (grid**2).sum(1)).argmin(1) for part in np.array_split(y, len(y) // 4096 + 1)]
    return np.concatenate(near).reshape(-1, 256 // width)


def _signs(y: NDArray, is_even: bool) -> NDArray:
    """(blocks, 32) numbers of eight sign bits; the smallest value gives way where their number must be even."""
    minus = (y < 0).reshape(-1, 8)
    if is_even:
        rows = np.flatnonzero(minus.sum(1) % 2)
        minus[rows, np.abs(y.reshape(-1, 8)[rows]).argmin(1)] ^= True
    return np.packbits(minus, axis=1, bitorder="little").reshape(-1, 32)


def _sevens(signs: U8, s: NDArray) -> NDArray:
    """Four times seven signs and s, a u32 for each sub-block."""
    seven = (signs & 127).reshape(-1, 8, 4).astype(np.uint32) << np.array([0, 7, 14, 21], np.uint32)
    return np.bitwise_or.reduce(seven, 2) | s.astype(np.uint32) << 28


def _low(which: NDArray) -> U8:
    return (which & 255).astype(np.uint8)


def _pairs(s: NDArray) -> U8:
    return (s[:, 0::2] | s[:, 1::2] << 4).astype(np.uint8)


def _tops(which: NDArray, n_bits: int) -> NDArray:
    """Bits 8 and up of a sub-block's entries, next to each other: (blocks, 8)."""
    top = (which >> 8).reshape(len(which), 8, -1)
    return np.bitwise_or.reduce(top << n_bits * np.arange(top.shape[2]), 2)


def iq2_xxs(x: F32) -> bytes:
    d, s, y = _scales(x, 32, 43, 1 / 8, 15)
    which = _low(_nearest(np.abs(y), GRIDS["IQ2_XXS"])).reshape(-1, 8, 4)
    words = _sevens(_signs(y, True), s)[..., None]
    return _bytes(_half(d), np.concatenate([which, np.ascontiguousarray(words).view(np.uint8)], 2))


def iq2_xs(x: F32) -> bytes:
    d, s, y = _scales(x, 16, 43, 1 / 8, 15)
    q = _nearest(np.abs(y), GRIDS["IQ2_XS"]).astype(np.uint16) | _signs(y, True).astype(np.uint16) << 9
    return _bytes(_half(d), q, _pairs(s))


def iq2_s(x: F32) -> bytes:
    d, s, y = _scales(x, 16, 43, 1 / 8, 15)
    which = _nearest(np.abs(y), GRIDS["IQ2_S"])
    return _bytes(_half(d), _low(which), _signs(y, False), _tops(which, 2).astype(np.uint8), _pairs(s))


def iq3_xxs(x: F32) -> bytes:
    d, s, y = _scales(x, 32, 62, 1 / 4, 15)
    return _bytes(_half(d), _low(_nearest(np.abs(y), GRIDS["IQ3_XXS"])), _sevens(_signs(y, True), s))


def iq3_s(x: F32) -> bytes:
    d, s, y = _scales(x, 32, 15, 1, 15)
    which = _nearest(np.abs(y), GRIDS["IQ3_S"])
    return _bytes(_half(d), _low(which), _tops(which, 1).astype(np.uint8), _signs(y, False), _pairs(s))


def iq1_s(x: F32) -> bytes:
    d, s, y = _scales(x, 32, 14, 1 / 8, 7)
    which = _nearest(y - 1, GRIDS["IQ1"])
    return _bytes(_half(d), _low(which), (_tops(which, 3) | s << 12).astype(np.uint16))


def iq1_m(x: F32) -> bytes:
    d, s, y = _scales(x, 16, 14, 1 / 8, 7)
    which = _nearest(y - 1, GRIDS["IQ1"])
    tops = (which >> 8).astype(np.uint8)
    threes = np.bitwise_or.reduce(s.reshape(-1, 4, 4) << 3 * np.arange(4), 2)
    words = threes | (_half(d).view(np.uint16) >> np.array([0, 4, 8, 12], np.uint16) & 15).astype(np.int64) << 12
    return _bytes(_low(which), tops[:, 0::2] | tops[:, 1::2] << 4, words.astype(np.uint16))
