"""Random blocks of a quant type whose values have a given spread: shapes and bytes of a real model, no meaning.

Every bit of a block is random but its scales, which stand within 0.5 to 1.5 of what gives the spread: real magnitudes,
no subnormal and no NaN, which would be slower than real weights. Not here: files (models.py), quantising.
"""

import numpy as np
from numpy.typing import NDArray

from engine.quants.registry import TYPES

U8 = NDArray[np.uint8]

# Where a block's halves stand and what they are for weights of standard deviation 1: (byte, factor). The second one of
# a type with a minimum is a multiple of the first, so that the values stand around 0.
_SCALES: dict[str, tuple[tuple[int, float], ...]] = {
    "Q4_0": ((0, 1 / 4.6),),
    "Q4_1": ((0, 1 / 4.6), (2, -7.5)),
    "Q5_0": ((0, 1 / 9.2),),
    "Q5_1": ((0, 1 / 9.2), (2, -15.5)),
    "Q8_0": ((0, 1 / 74),),
    "Q4_K": ((0, 1 / 258), (2, 7.5)),
    "Q5_K": ((0, 1 / 527), (2, 15.5)),
    "Q6_K": ((208, 1 / 261),),
    "TQ2_0": ((64, 1 / 0.82),),
    "Q2_K": ((80, 1 / 13.9), (82, 1.5)),
    "Q3_K": ((108, 1 / 43.3),),
    "IQ4_NL": ((0, 1 / 67.4),),
    "IQ4_XS": ((0, 1 / 1247),),
    "TQ1_0": ((52, 1 / 0.82),),
}
MADE = ("F32", "F16", "BF16", "MXFP4", *_SCALES)


def random_blocks(type_name: str, n_items: int, spread: float, rng: np.random.Generator) -> U8:
    """The bytes of n_items weights (whole blocks) of a type, their standard deviation near `spread`."""
    if type_name in ("F32", "F16", "BF16"):
        return _floats(type_name, rng.standard_normal(n_items, np.float32) * np.float32(spread))
    kind = TYPES[type_name]
    assert n_items % kind.items == 0, (type_name, n_items)
    n = n_items // kind.items
    blocks = rng.integers(0, 256, (n, kind.n_bytes), dtype=np.uint8)
    if type_name == "MXFP4":  # a power of two, chosen so that the mean is right
        e = np.floor(128 + np.log2(spread / 5.85) + rng.random(n)).astype(np.uint8)
        blocks[:, 0] = e
        return blocks.reshape(-1)
    (at, factor), *minimum = _SCALES[type_name]
    d = (spread * factor * (0.5 + rng.random(n))).astype(np.float16)
    blocks[:, at : at + 2] = d.view(np.uint8).reshape(n, 2)
    for second, times in minimum:
        m = (d.astype(np.float32) * times).astype(np.float16)
        blocks[:, second : second + 2] = m.view(np.uint8).reshape(n, 2)
    if type_name == "Q6_K":  # sixteen int8 scales of the blocks inside
        blocks[:, 192:208] = rng.integers(-24, 25, (n, 16), dtype=np.int8).view(np.uint8)
    if type_name == "TQ2_0":  # four digits 0, 1, 2 in a byte; 3 stands for nothing
        digits = rng.integers(0, 3, (4, n, 64), dtype=np.uint8)
        blocks[:, :64] = digits[0] | digits[1] << 2 | digits[2] << 4 | digits[3] << 6
    return blocks.reshape(-1)


def _floats(type_name: str, values: NDArray[np.float32]) -> U8:
    if type_name == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return values.astype(np.float16 if type_name == "F16" else np.float32).view(np.uint8)
