"""Block formats written out slowly in numpy: the twins that kernels are compared with. Not here: anything fast.

    F32   4 bytes a value           F16  2 bytes, IEEE half          BF16  2 bytes, the upper half of a float32
    Q8_0  [f16 d][32 x int8]                      value = d * q                                   34 bytes, 32 values
    Q4_0  [f16 d][16 bytes]         value = d * (q - 8)                                           18 bytes, 32 values
    Q4_1  [f16 d][f16 m][16 bytes]  value = d * q + m                                             20 bytes, 32 values

Other types: tests/blocks_k.py, tests/blocks_low.py and twins.py. In the 4-bit blocks byte i holds value i in its low
half and value i + 16 in its high half.
"""

import numpy as np
from numpy.typing import NDArray

from engine.quants.registry import TYPES
from tests import blocks_grid, blocks_k, blocks_low
from tests.engine.quants.twins import weights

F32 = NDArray[np.float32]


def quantise(values: NDArray[np.floating], type_name: str) -> bytes:
    """The bytes of `values` (rows last dimension contiguous, its length a multiple of the block) in a type."""
    return _QUANTISE[type_name](np.ascontiguousarray(values, dtype=np.float32))


def dequantise(data: bytes, type_name: str, shape: tuple[int, ...]) -> F32:
    """float32 values of `data`, shaped (numpy order: contiguous dimension last)."""
    raw = np.frombuffer(data, np.uint8)
    if type_name in _DEQUANTISE:
        return _DEQUANTISE[type_name](raw).reshape(shape)
    return weights(type_name, raw.reshape(-1, 1, TYPES[type_name].n_bytes)).reshape(shape)


def _to_bf16(x: F32) -> bytes:
    bits = x.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()


def _from_bf16(raw: NDArray[np.uint8]) -> F32:
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _inverse(d: F32) -> F32:
    return np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)


def _to_q8_0(x: F32) -> bytes:
    x = x.reshape(-1, 32)
    d = np.abs(x).max(1, keepdims=True) / np.float32(127)
    scaled = x * _inverse(d)
    q = np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).astype(np.int8)
    return _join(d.astype(np.float16), q)


def _from_q8_0(raw: NDArray[np.uint8]) -> F32:
    blocks = raw.reshape(-1, 34)
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _to_q4_0(x: F32) -> bytes:
    x = x.reshape(-1, 32)
    extreme = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)
    d = extreme / np.float32(-8)
    q = np.minimum(15, np.trunc(x * _inverse(d) + np.float32(8.5))).astype(np.uint8)
    return _join(d.astype(np.float16), _nibbles(q))


def _from_q4_0(raw: NDArray[np.uint8]) -> F32:
    blocks = raw.reshape(-1, 18)
    return _half(blocks, 0) * (_unpack(blocks[:, 2:]) - np.float32(8))


def _to_q4_1(x: F32) -> bytes:
    x = x.reshape(-1, 32)
    m = x.min(1, keepdims=True)
    d = (x.max(1, keepdims=True) - m) / np.float32(15)
    q = np.minimum(15, np.trunc((x - m) * _inverse(d) + np.float32(0.5))).astype(np.uint8)
    return _join(d.astype(np.float16), m.astype(np.float16), _nibbles(q))


def _from_q4_1(raw: NDArray[np.uint8]) -> F32:
    blocks = raw.reshape(-1, 20)
    return _half(blocks, 0) * _unpack(blocks[:, 4:]) + _half(blocks, 2)


def _nibbles(q: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return q[:, :16] | (q[:, 16:] << 4)


def _unpack(packed: NDArray[np.uint8]) -> F32:
    return np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32)


def _half(blocks: NDArray[np.uint8], at: int) -> F32:
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def _join(*parts: NDArray) -> bytes:
    return np.concatenate([np.ascontiguousarray(p).view(np.uint8) for p in parts], axis=1).tobytes()


_QUANTISE = {
    "F32": lambda x: x.tobytes(),
    "F16": lambda x: x.astype(np.float16).tobytes(),
    "BF16": _to_bf16,
    "Q8_0": _to_q8_0,
    "Q4_0": _to_q4_0,
    "Q4_1": _to_q4_1,
    "Q5_0": blocks_k.q5_0,
    "Q5_1": blocks_k.q5_1,
    "Q4_K": blocks_k.q4_k,
    "Q5_K": blocks_k.q5_k,
    "Q6_K": blocks_k.q6_k,
    "TQ2_0": blocks_k.tq2_0,
    "Q2_K": blocks_low.q2_k,
    "Q3_K": blocks_low.q3_k,
    "IQ4_NL": blocks_low.iq4_nl,
    "IQ4_XS": blocks_low.iq4_xs,
    "MXFP4": blocks_low.mxfp4,
    "TQ1_0": blocks_low.tq1_0,
    "IQ2_XXS": blocks_grid.iq2_xxs,
    "IQ2_XS": blocks_grid.iq2_xs,
    "IQ3_XXS": blocks_grid.iq3_xxs,
    "IQ1_S": blocks_grid.iq1_s,
    "IQ3_S": blocks_grid.iq3_s,
    "IQ2_S": blocks_grid.iq2_s,
    "IQ1_M": blocks_grid.iq1_m,
}
_DEQUANTISE = {
    "F32": lambda raw: raw.view(np.float32).copy(),
    "F16": lambda raw: raw.view(np.float16).astype(np.float32),
    "BF16": _from_bf16,
    "Q8_0": _from_q8_0,
    "Q4_0": _from_q4_0,
    "Q4_1": _from_q4_1,
}
