"""Numpy twins of the formats whose weights stand in tables, as codes.py has those of others. Not here: the tables.

The tables come from the engine; that they are right is what the reference decoder's digests prove.
"""

from collections.abc import Callable

import numpy as np

from engine.quants import grids
from tests.engine.quants.codes import I32, Codes, flat, halves, only

F32 = np.float32
EIGHT, FOUR = np.arange(8), np.arange(4)


def table(words: tuple[int, ...], width: int) -> np.ndarray:
    """(entries, width) signed."""
    return np.array(words, np.uint64)[:, None].view(np.int8)[:, :width].astype(I32)


GRIDS = {
    "IQ2_XXS": table(grids.IQ2_XXS, 8), "IQ2_XS": table(grids.IQ2_XS, 8), "IQ2_S": table(grids.IQ2_S, 8),
    "IQ3_XXS": table(grids.IQ3_XXS, 4), "IQ3_S": table(grids.IQ3_S, 4), "IQ1": table(grids.IQ1, 8),
}  # fmt: skip


def part(raw: np.ndarray, first: int, end: int, kind: type = np.uint8) -> np.ndarray:
    """Bytes of each block as whole numbers of a width, in sub-blocks: (rows, blocks, 8, ...)."""
    return np.ascontiguousarray(raw[..., first:end]).view(kind).astype(np.int64).reshape(*raw.shape[:2], 8, -1)


def signs(bits: np.ndarray) -> np.ndarray:
    """(..., n) numbers of eight bits -> (..., 8n) of 1 and -1."""
    minus = bits[..., None] >> EIGHT & 1
    return 1 - 2 * minus.reshape(*bits.shape[:-1], -1)


def even(seven: np.ndarray) -> np.ndarray:
    return seven | ((seven[..., None] >> EIGHT & 1).sum(-1) & 1) << 7


def looked_up(kind: str, which: np.ndarray) -> np.ndarray:
    """(rows, blocks, 8, entries) -> (rows, blocks, 8, 32)."""
    return GRIDS[kind][which].reshape(*which.shape[:3], 32)


def nibble_scales(raw: np.ndarray) -> np.ndarray:
    """Bytes of scales, two nibbles each -> 2s + 1 (rows, blocks, 8, count): low nibbles first within a byte."""
    return 2 * np.stack([raw & 15, raw >> 4], -1).astype(I32).reshape(*raw.shape[:2], 8, -1) + 1


def scaled(d: np.ndarray, part: float, values: np.ndarray, scales: np.ndarray) -> Codes:
    """d (rows, blocks), values (rows, blocks, 8, 32), scales (rows, blocks, 8, 1 or 2)."""
    q = values * scales.repeat(32 // scales.shape[-1], -1)
    return only((d * F32(part)).repeat(8, -1), flat(q.astype(I32)))


def iq2_xxs(raw: np.ndarray) -> Codes:
    which, words = part(raw, 2, 66)[..., :4], part(raw, 2, 66, np.uint32)[..., 1:]
    values = looked_up("IQ2_XXS", which) * signs(even(words >> 7 * FOUR & 127))
    return scaled(halves(raw[..., :2]), 1 / 8, values, 2 * (words >> 28) + 1)


def iq2_xs(raw: np.ndarray) -> Codes:
    q = part(raw, 2, 66, np.uint16)
    return scaled(
        halves(raw[..., :2]), 1 / 8, looked_up("IQ2_XS", q & 511) * signs(even(q >> 9)), nibble_scales(raw[..., 66:74])
    )


def iq2_s(raw: np.ndarray) -> Codes:
    which = part(raw, 2, 34) | (part(raw, 66, 74) >> 2 * FOUR & 3) << 8
    values = looked_up("IQ2_S", which) * signs(part(raw, 34, 66))
    return scaled(halves(raw[..., :2]), 1 / 8, values, nibble_scales(raw[..., 74:82]))


def iq3_xxs(raw: np.ndarray) -> Codes:
    words = part(raw, 66, 98, np.uint32)
    values = looked_up("IQ3_XXS", part(raw, 2, 66)) * signs(even(words >> 7 * FOUR & 127))
    return scaled(halves(raw[..., :2]), 1 / 4, values, 2 * (words >> 28) + 1)


def iq3_s(raw: np.ndarray) -> Codes:
    which = part(raw, 2, 66) | (part(raw, 66, 74) >> EIGHT & 1) << 8
    values = looked_up("IQ3_S", which) * signs(part(raw, 74, 106))
    return scaled(halves(raw[..., :2]), 1.0, values, nibble_scales(raw[..., 106:110]))


def iq1_s(raw: np.ndarray) -> Codes:
    top = part(raw, 34, 50, np.uint16)
    values = looked_up("IQ1", part(raw, 2, 34) | (top >> 3 * FOUR & 7) << 8) + 1 - 2 * (top >> 15)
    return scaled(halves(raw[..., :2]), 1 / 8, values, 2 * (top >> 12 & 7) + 1)


def iq1_m(raw: np.ndarray) -> Codes:
    top = part(raw, 32, 48)
    top = np.stack([top & 15, top >> 4], -1).reshape(*top.shape[:3], 4)
    values = looked_up("IQ1", part(raw, 0, 32) | (top & 7) << 8) + (1 - 2 * (top >> 3)).repeat(8, -1)
    words = np.ascontiguousarray(raw[..., 48:56]).view(np.uint16)
    s = (words[..., None].astype(I32) >> 3 * FOUR & 7).reshape(*raw.shape[:2], 8, 2)
    bits = ((words >> 12) << np.array([0, 4, 8, 12], np.uint16)).sum(-1).astype(np.uint16)
    return scaled(bits.view(np.float16).astype(F32), 1 / 8, values, 2 * s + 1)


GRID_CODES: dict[str, Callable[[np.ndarray], Codes]] = {
    "IQ2_XXS": iq2_xxs, "IQ2_XS": iq2_xs, "IQ2_S": iq2_s, "IQ3_XXS": iq3_xxs, "IQ3_S": iq3_s, "IQ1_S": iq1_s,
    "IQ1_M": iq1_m,
}  # fmt: skip
