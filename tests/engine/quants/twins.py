"""Numpy twins of the block formats and their arithmetic: slow, obvious, bit for bit. Not here: any kernel.

A fused multiply-add is emulated in float64: the product of two float32 is exact there and one rounding to float32
follows. (A double rounding can differ in one case in about 2^29; no test has met it.) Without FMA it rounds twice.
"""

import numpy as np

from tests.engine.quants import codes
from tests.engine.quants.codes import flat, halves, nibbles
from tests.engine.quants.grid_codes import GRID_CODES

F32, I32 = np.float32, np.int32
REFINE, FINE = F32(1.5), F32(254)
WITH_MIN = ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K", "TQ2_0", "I2_S")


def six_bits(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The twelve scale bytes of Q4_K and Q5_K (rows, blocks, 12) -> sc, m (rows, blocks, 8)."""
    a, b, c = (raw[..., i : i + 4].astype(I32) for i in (0, 4, 8))
    sc = np.concatenate([a & 63, (c & 15) | (a >> 6) << 4], -1)
    return sc, np.concatenate([b & 63, (c >> 4) | (b >> 6) << 4], -1)


def bit(raw: np.ndarray, n: int) -> np.ndarray:
    """Bit n of each byte as the fifth of a number."""
    return ((raw >> n) & 1).astype(I32) << 4


def split(kind: str, raw: np.ndarray) -> codes.Codes:
    """(rows, blocks, bytes) -> d, m (rows, 32-blocks), integers q, k (rows, 32-blocks, 32), w = d*q + m*k."""
    if decode := codes.CODES.get(kind) or GRID_CODES.get(kind):
        return decode(raw)
    d, m, q = _split(kind, raw)
    return d, m, q, np.ones_like(q)


def _split(kind: str, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same of types whose k is 1."""
    if kind in ("Q4_K", "Q5_K"):
        sc, mins = six_bits(raw[..., 4:16])
        d = flat(halves(raw[..., 0:2])[..., None] * sc.astype(F32))
        m = flat((F32(0) - halves(raw[..., 2:4]))[..., None] * mins.astype(F32))
        low = raw[..., -128:].reshape(*raw.shape[:2], 4, 1, 32) >> np.array([0, 4], np.uint8)[:, None] & 15
        q = low.reshape(*raw.shape[:2], 8, 32).astype(I32)
        if kind == "Q5_K":
            q = q | np.stack([bit(raw[..., 16:48], j) for j in range(8)], -2)
        return d, m, flat(q)
    if kind == "TQ2_0":
        d = halves(raw[..., 64:66]).repeat(8, -1)
        q = raw[..., :64].reshape(*raw.shape[:2], 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
        return d, F32(0) - d, flat(q.reshape(*raw.shape[:2], 8, 32).astype(I32))
    d = halves(raw[..., 0:2])
    m = halves(raw[..., 2:4]) if kind in ("Q4_1", "Q5_1") else np.zeros_like(d)
    if kind == "Q8_0":
        return d, m, raw[..., 2:].view(np.int8).astype(I32)
    q = nibbles(raw[..., -16:])
    if kind in ("Q5_0", "Q5_1"):
        q = q | np.unpackbits(raw[..., -20:-16], axis=-1, bitorder="little").astype(I32) << 4
    return d, m, q - {"Q4_0": 8, "Q5_0": 16}.get(kind, 0)


def sixteens(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q6_K: d (rows, 32-blocks), sc (rows, 32-blocks, 2), q - 32 (rows, 32-blocks, 2, 16)."""
    ql, qh = raw[..., :128].reshape(*raw.shape[:2], 2, 1, 2, 32), raw[..., 128:192].reshape(*raw.shape[:2], 2, 1, 32)
    low = ql >> np.array([0, 4], np.uint8)[:, None, None] & 15
    top = qh >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    q = low.reshape(*raw.shape[:2], 8, 2, 16).astype(I32) | top.reshape(*raw.shape[:2], 8, 2, 16).astype(I32) << 4
    sc = raw[..., 192:208].view(np.int8).reshape(*raw.shape[:2], 8, 2).astype(I32)
    return halves(raw[..., 208:210]).repeat(8, -1), flat(sc), flat(q) - 32


def weights(kind: str, raw: np.ndarray) -> np.ndarray:
    """(rows, blocks, bytes) -> float32 (rows, columns)."""
    if kind == "F32":
        return raw.view(F32)[..., 0]
    if kind == "F16":
        return raw.view(np.float16).astype(F32)[..., 0]
    if kind == "BF16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(F32)[..., 0]
    if kind == "Q6_K":
        d, sc, q = sixteens(raw)
        return (d[..., None, None] * sc.astype(F32)[..., None] * q.astype(F32)).reshape(len(raw), -1)
    d, m, q, k = split(kind, raw)
    return (d[..., None] * q.astype(F32) + m[..., None] * k.astype(F32)).reshape(len(raw), -1)


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray, fused: bool) -> np.ndarray:
    if not fused:
        return (a * b).astype(F32) + c
    return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(F32)


def quantise(x: np.ndarray, fused: bool) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(tokens, k) -> coarse and fine level: int q (tokens, blocks, 32), d (tokens, blocks), sums (tokens, blocks)."""
    blocks = x.astype(F32).reshape(len(x), -1, 32)
    top = np.abs(blocks).max(-1)
    mean = np.zeros(len(x), F32)
    for b in range(top.shape[1]):
        mean = mean + top[:, b]
    border = mean / F32(top.shape[1]) * REFINE
    d = top / F32(127)
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.rint(blocks * np.where(top > 0, F32(127) / top, F32(0)).astype(F32)[..., None]).astype(I32)
        left = fma(q.astype(F32), -d[..., None], blocks, fused)
        fine_q = np.rint(left * (F32(127) * FINE / top)[..., None])
    fine = top > border[:, None]
    fine_q = np.where(fine[..., None], fine_q, 0).astype(I32)
    return [(q, d, q.sum(-1)), (fine_q, np.where(fine, d / FINE, F32(0)), fine_q.sum(-1))]


def matmul(kind: str, raw: np.ndarray, x: np.ndarray, fused: bool) -> np.ndarray:
    """What the kernels compute: (rows, blocks, bytes) weights, (tokens, k) float32 -> (tokens, rows) float32."""
    if kind in ("F32", "F16", "BF16"):
        w = weights(kind, raw)
        chains = [np.zeros((len(x), len(w)), F32) for _ in range(4)]
        for k in range(w.shape[1]):
            chains[k % 4] = fma(w[None, :, k], x[:, None, k], chains[k % 4], fused)
        return (chains[0] + chains[1]) + (chains[2] + chains[3])
    if kind == "Q6_K":
        return sixes(raw, x, fused)
    d, m, q, k = split(kind, raw)
    acc = np.zeros((len(x), len(raw)), F32)
    levels = quantise(x, fused)
    for b in range(q.shape[1]):
        for level, (xq, xd, _) in enumerate(levels):
            total = (xq[:, b, :].astype(np.int64) @ q[:, b, :].astype(np.int64).T).astype(F32)
            if kind in WITH_MIN:
                sums = (xq[:, b, :].astype(np.int64) @ k[:, b, :].astype(np.int64).T).astype(F32)
                inside = fma(d[None, :, b], total, m[None, :, b] * sums, fused)
                new = fma(xd[:, b, None], inside, acc, fused)
            else:
                new = fma(d[None, :, b] * xd[:, b, None], total, acc, fused)
            acc = np.where((xd[:, b, None] == 0) & (level == 1), acc, new)
    return acc


def sixes(raw: np.ndarray, x: np.ndarray, fused: bool) -> np.ndarray:
    """The same for Q6_K: two sums of sixteen columns, each with its own scale."""
    d, sc, q = sixteens(raw)
    scale = d[..., None] * sc.astype(F32)
    acc = np.zeros((len(x), len(raw)), F32)
    levels = quantise(x, fused)
    for b in range(q.shape[1]):
        for level, (xq, xd, _) in enumerate(levels):
            first, second = ((xq[:, b, 16 * i : 16 * i + 16] @ q[:, b, i].T).astype(F32) for i in (0, 1))
            scaled = fma(scale[None, :, b, 1], second, scale[None, :, b, 0] * first, fused)
            new = fma(xd[:, b, None], scaled, acc, fused)
            acc = np.where((xd[:, b, None] == 0) & (level == 1), acc, new)
    return acc
