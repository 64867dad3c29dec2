"""The bytes of each type whose values are compared with another decoder's, and their digest. Not here: either."""

import hashlib

import numpy as np

from engine.quants.registry import TYPES


def sample(kind: str) -> np.ndarray:
    """Random file bytes (rows, blocks, bytes of a block): every code, every scale, infinities and NaN among them."""
    row = TYPES[kind]
    shape = (64, 1024 // row.items, row.n_bytes)
    return np.random.default_rng(row.id).integers(0, 256, shape, dtype=np.uint8)


def digest(values: np.ndarray) -> str:
    """SHA-256 of float32 values; NaN counts as 0, and -0 as 0."""
    with np.errstate(all="ignore"):
        return hashlib.sha256(np.nan_to_num(values.astype(np.float32)) + np.float32(0)).hexdigest()
