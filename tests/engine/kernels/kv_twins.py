"""Numpy twins of the K and V types and of one row's attention: the same integers, the same f32 order. Not here: tests.

A fused multiply-add is emulated in float64, whose one rounding before float32's is never seen to differ.
"""

from typing import Any

import numpy as np

from engine.kernels.isa import ISA

F = np.float32
Array = np.ndarray[Any, Any]
KINDS = ("f32", "f16", "bf16", "q8_0", "q4_0")
PAGE = 256


def fma(x: Any, y: Any, z: Any) -> Array:
    """x * y + z as the CPU does it: rounded once with FMA, twice without."""
    if ISA.fma:
        return np.asarray(np.asarray(x, np.float64) * y + z).astype(F)
    return np.asarray(np.asarray(x * y, F) + z, F)


def bf16(x: Array) -> Array:
    """float32 -> bf16 bits, to nearest even."""
    bits = x.astype(F).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def stored(kind: str, x: Array) -> Array:
    """A float type's items, in its own dtype."""
    return x.astype(F) if kind == "f32" else x.astype(np.float16) if kind == "f16" else bf16(x)


def floats(kind: str, items: Array) -> Array:
    """What a float type's items mean."""
    return (items.astype(np.uint32) << 16).view(F) if kind == "bf16" else items.astype(F)


def blocks_of(x: Array) -> Array:
    return x.astype(F).reshape(*x.shape[:-1], -1, 32)


def eight_bits(x: Array) -> tuple[Array, Array]:
    """Blocks of 32 -> int8, their scale in float32."""
    x = blocks_of(x)
    most = np.abs(x).max(-1, keepdims=True)
    inverse = np.divide(F(127), most, out=np.zeros_like(most), where=most > 0)
    return np.rint(x * inverse).astype(np.int8), (most / F(127))[..., 0]


def four_bits(x: Array) -> tuple[Array, Array]:
    """Blocks of 32 -> 0..15, their scale in float32."""
    x = blocks_of(x)
    top, least = x.max(-1, keepdims=True), x.min(-1, keepdims=True)
    scale = np.where(-least >= top, least, top) * F(-0.125) + F(0)  # 0 of zeros, never -0
    inverse = np.divide(F(1), scale, out=np.zeros_like(scale), where=scale != 0)
    return np.minimum(x * inverse + F(8.5), F(15)).astype(np.uint8), scale[..., 0]


def kept(kind: str, x: Array) -> tuple[Array, Array]:
    """Whole numbers (..., blocks, 32) and scales as the cache keeps them; a float type is one block of floats."""
    if kind == "q8_0":
        q, d = eight_bits(x)
        return q.astype(F), d.astype(np.float16).astype(F)
    if kind == "q4_0":
        u, d = four_bits(x)
        return u.astype(F) - F(8), d.astype(np.float16).astype(F)
    return floats(kind, stored(kind, x)), np.ones(1, F)


def pack_k(kind: str, x: Array) -> Array:
    """The K part of a page as bytes; x (256, head_dim)."""
    if kind in ("f32", "f16", "bf16"):
        return np.ascontiguousarray(stored(kind, x).reshape(32, 8, -1).transpose(0, 2, 1)).view(np.uint8).ravel()
    q, d = eight_bits(x) if kind == "q8_0" else four_bits(x)
    lines = q.view(np.uint8).reshape(32, 8, -1, 8, 4).transpose(0, 2, 3, 1, 4)  # panel, block, group, position, byte
    if kind == "q4_0":
        lines = lines[:, :, :4] | lines[:, :, 4:] << 4
    scales = d.astype(np.float16).reshape(32, 8, -1).transpose(0, 2, 1)
    parts = [np.ascontiguousarray(scales).view(np.uint8), lines.reshape(*scales.shape[:2], -1)]
    return np.concatenate(parts, -1).ravel()


def sliced(items: Array) -> list[Array]:
    """Columns of (256, n) in slices of 16, the last one narrower where n is no multiple, as bytes."""
    return [np.ascontiguousarray(items[:, i : i + 16]).view(np.uint8).ravel() for i in range(0, items.shape[1], 16)]


def pack_v(kind: str, x: Array) -> Array:
    """The V part of a page as bytes; x (256, head_dim)."""
    if kind in ("f32", "f16", "bf16"):
        return np.concatenate(sliced(stored(kind, x)))
    q, d = eight_bits(x) if kind == "q8_0" else four_bits(x)
    parts = sliced(q.reshape(PAGE, -1))
    if kind == "q4_0":
        halves = [part.reshape(PAGE, 2, 8) for part in parts]
        parts = [(half[:, 0] | half[:, 1] << 4).ravel() for half in halves]
    return np.concatenate([np.ascontiguousarray(d.astype(np.float16).T).view(np.uint8).ravel(), *parts])


def scores(kind: str, k: Array, q: Array) -> Array:
    """(n_q, positions) float32: keys (positions, head_dim) as they come, queries (n_q, head_dim)."""
    keys, d = kept(kind, k)
    acc = np.zeros((len(q), len(k)), F)
    if kind in ("f32", "f16", "bf16"):
        for i in range(q.shape[1]):
            acc = fma(q[:, i : i + 1], keys[:, i], acc)
        return acc
    ints, dq = eight_bits(q)
    for block in range(d.shape[1]):
        total = ints[:, block].astype(np.int64) @ keys[:, block].T.astype(np.int64)
        acc = fma((dq[:, block : block + 1] * d[:, block]).astype(F), total.astype(F), acc)
    return acc


def mix(kind: str, v: Array, w: Array) -> Array:
    """(n_q, head_dim) float32: values (positions, head_dim) as they come, weights (n_q, positions)."""
    values, d = kept(kind, v)
    acc = np.zeros((len(w), v.shape[1]), F)
    for p in range(len(v)):
        if kind in ("f32", "f16", "bf16"):
            acc = fma(w[:, p : p + 1], values[p], acc)
        else:
            scaled = np.repeat((w[:, p : p + 1] * d[p]).astype(F), 32, 1)
            acc = fma(scaled, values[p].ravel(), acc)
    return acc


def exp(x: Array) -> Array:
    """exp8 of vmath.py."""
    held = np.maximum(np.minimum(x, F(88)), F(-87))
    n = np.rint(held * F(1.44269504)).astype(F)
    r = fma(n, F(2.12194440e-4), fma(n, F(-0.693359375), held))
    p: Any = F(1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = fma(p, r, F(c))
    p = fma(p * r, r, r) + F(1)
    return np.where(x < F(-87), F(0), (p * np.ldexp(F(1), n.astype(int))).astype(F))


def folded(lanes: Array) -> Array:
    """Eight lanes (last axis) by the fixed tree of sum_f32x8."""
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def row(kinds: tuple[str, str], q: Array, k: Array, v: Array, window: int = 0, soft_cap: float = 0.0,
        sinks: Array | None = None) -> Array:  # fmt: skip
    """The last position's attention, (heads of one kv head, head_dim): queries (heads, head_dim) rotated and scaled,
    keys and values of all positions."""
    low, n = max(0, len(k) - window) if window else 0, len(k)
    top = total = values = None
    for start in range(low // PAGE * PAGE, n, PAGE):
        end, begin = min(n, start + PAGE), max(low, start)
        s = np.full((len(q), PAGE), F(-1e30), F)
        own = scores(kinds[0], k[begin:end], q)
        if soft_cap:
            grown = exp(own * F(F(2) / F(soft_cap))) + F(1)
            own = (F(1) - F(2) / grown) * F(soft_cap)
        s[:, begin - start : end - start] = own
        most = s.max(1)
        e = exp(s - most[:, None])
        lanes = np.zeros((len(q), 8), F)
        for i in range(0, PAGE, 8):
            lanes = lanes + e[:, i : i + 8]
        mixed = mix(kinds[1], v[begin:end], e[:, begin - start : end - start])
        if top is None:
            top, total, values = most, folded(lanes), mixed
            continue
        joint = np.maximum(top, most)
        a, b = exp(top - joint), exp(most - joint)
        values = fma(mixed, b[:, None], (values * a[:, None]).astype(F))
        # one rounding or two: the compiler may not fuse, so two
        top, total = joint, (total * a).astype(F) + (folded(lanes) * b).astype(F)
    assert top is not None and total is not None and values is not None
    if sinks is not None:
        joint = np.maximum(top, sinks)
        a = exp(top - joint)
        return (values * a[:, None]).astype(F) / ((total * a).astype(F) + exp(sinks - joint))[:, None]
    return values / total[:, None]
