"""Blocks that begin with one f16 scale and say nothing else: eight rows' of it. Not here: their weights."""

from engine.kernels.jit import inner
from engine.kernels.simd import column_f16, ld_f16x8


@inner
def head(w):
    """Of a panel."""
    return (ld_f16x8(w),)


@inner
def head_rows(w, stride):
    """Of eight file rows."""
    return (column_f16(w, stride),)


@inner
def scales(h, _j):
    return h
