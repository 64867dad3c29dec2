"""Numpy twins of the block formats and their arithmetic: slow, obvious, bit for bit. Not here: any kernel.

A fused multiply-add is emulated in float64: the product of two float32 is exact there and one rounding to float32
follows. (A double rounding can differ in one case in about 2^29; no test has met it.) Without FMA it rounds twice.
"""

import numpy as np

F32, I32 = np.float32, np.int32
REFINE, FINE = F32(1.5), F32(254)


def halves(raw: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(raw).view(np.float16).astype(F32)[..., 0]


def split(kind: str, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows, blocks, bytes) -> scale d, minimum m (rows, blocks) and integers q (rows, blocks, 32), w = d*q + m."""
    d = halves(raw[..., 0:2])
    if kind == "Q8_0":
        return d, np.zeros_like(d), raw[..., 2:].view(np.int8).astype(I32)
    low = 4 if kind == "Q4_1" else 2
    q = np.concatenate([raw[..., low:] & 15, raw[..., low:] >> 4], axis=-1).astype(I32)
    if kind == "Q4_1":
        return d, halves(raw[..., 2:4]), q
    return d, np.zeros_like(d), q - 8


def weights(kind: str, raw: np.ndarray) -> np.ndarray:
    """(rows, blocks, bytes) -> float32 (rows, columns)."""
    if kind == "F32":
        return raw.view(F32)[..., 0]
    if kind == "F16":
        return raw.view(np.float16).astype(F32)[..., 0]
    if kind == "BF16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(F32)[..., 0]
    d, m, q = split(kind, raw)
    return (d[..., None] * q.astype(F32) + m[..., None]).reshape(len(raw), -1)


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
    d, m, q = split(kind, raw)
    acc = np.zeros((len(x), len(raw)), F32)
    levels = quantise(x, fused)
    for b in range(q.shape[1]):
        for level, (xq, xd, xs) in enumerate(levels):
            total = (xq[:, b, :] @ q[:, b, :].T).astype(F32)
            if kind == "Q4_1":
                inside = fma(d[None, :, b], total, m[None, :, b] * xs[:, b, None].astype(F32), fused)
                new = fma(xd[:, b, None], inside, acc, fused)
            else:
                new = fma(d[None, :, b] * xd[:, b, None], total, acc, fused)
            acc = np.where((xd[:, b, None] == 0) & (level == 1), acc, new)
    return acc
