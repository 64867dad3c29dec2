"""Curves of hidden values, eight lanes at a time: silu, gelu, squared relu, caps. Not here: where they are used.

    silu    x / (1 + e^-x)
    gelu    x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3): the tanh form (Hendrycks and Gimpel 2016,
            arXiv:1606.08415), as (1 + tanh u) / 2 is 1 / (1 + e^-2u)
    erf     x P(X <= x), X normal: gelu itself (ibid.); P to 1e-7 (Hastings, in Abramowitz and Stegun 1964, 26.2.17)
    clamped x / (1 + e^-1.702x) of x held at most `limit`, times y + 1, y held within it (gpt-oss: OpenAI 2025,
            arXiv:2508.10925); NaN stays NaN
    relu2   max(0, x)^2 (So et al. 2021, arXiv:2109.08668); NaN stays NaN
"""

from engine.kernels.jit import inner
from engine.kernels.simd import (
    add_f32x8, div_f32x8, f32, fma_f32x8, ld_f32x8, mul_f32x8, sp_f32x8, st_f32x8, sub_f32x8, z_f32x8,
)  # fmt: skip
from engine.kernels.vmath import exp8, greater, smaller

PLAIN, SILU, GELU, RELU2, CLAMPED, ERF = range(6)
SLOPE = f32(1.702)  # of the clamped gate: x * sigmoid(1.702 x) is near gelu


@inner
def silu8(x):
    return div_f32x8(x, add_f32x8(sp_f32x8(f32(1.0)), exp8(sub_f32x8(z_f32x8(), x))))


@inner
def gelu8(x):
    inside = fma_f32x8(mul_f32x8(x, x), sp_f32x8(f32(-0.07135481627)), sp_f32x8(f32(-1.595769122)))
    return div_f32x8(x, add_f32x8(sp_f32x8(f32(1.0)), exp8(mul_f32x8(x, inside))))


@inner
def erf8(x):
    """max(0, x) - |x| P(X > |x|)."""
    zero, one = z_f32x8(), sp_f32x8(f32(1.0))
    far = greater(x, sub_f32x8(zero, x))
    t = div_f32x8(one, fma_f32x8(far, sp_f32x8(f32(0.2316419)), one))
    p = fma_f32x8(t, sp_f32x8(f32(0.53070271)), sp_f32x8(f32(-0.72657601)))
    p = fma_f32x8(p, t, sp_f32x8(f32(0.71070687)))
    p = fma_f32x8(p, t, sp_f32x8(f32(-0.14224837)))
    p = mul_f32x8(fma_f32x8(p, t, sp_f32x8(f32(0.12741480))), t)
    tail = mul_f32x8(p, exp8(mul_f32x8(mul_f32x8(x, x), sp_f32x8(f32(-0.5)))))
    return sub_f32x8(sub_f32x8(x, smaller(x, zero)), mul_f32x8(far, tail))


@inner
def relu2_8(x):
    held = sub_f32x8(x, smaller(x, z_f32x8()))
    return mul_f32x8(held, held)


@inner
def capped8(x, cap):
    """cap * tanh(x / cap), tanh x = 1 - 2 / (e^2x + 1): to 2e-7 cap."""
    one, two = sp_f32x8(f32(1.0)), sp_f32x8(f32(2.0))
    grown = add_f32x8(exp8(mul_f32x8(x, sp_f32x8(f32(2.0) / cap))), one)
    return mul_f32x8(sub_f32x8(one, div_f32x8(two, grown)), sp_f32x8(cap))


@inner
def bend(x, k, curve):
    """k floats, a multiple of 8, in place."""
    if curve == SILU:
        for i in range(0, k * 4, 32):
            st_f32x8(x + i, silu8(ld_f32x8(x + i)))
    elif curve == GELU:
        for i in range(0, k * 4, 32):
            st_f32x8(x + i, gelu8(ld_f32x8(x + i)))
    elif curve == RELU2:
        for i in range(0, k * 4, 32):
            st_f32x8(x + i, relu2_8(ld_f32x8(x + i)))
    elif curve == ERF:
        for i in range(0, k * 4, 32):
            st_f32x8(x + i, erf8(ld_f32x8(x + i)))


@inner
def bend_times(x, y, k, curve):
    """k floats at x: their curve times those at y."""
    if curve == SILU:
        for i in range(0, k * 4, 32):
            st_f32x8(x + i, mul_f32x8(silu8(ld_f32x8(x + i)), ld_f32x8(y + i)))
    elif curve == GELU:
        for i in range(0, k * 4, 32):
            st_f32x8(x + i, mul_f32x8(gelu8(ld_f32x8(x + i)), ld_f32x8(y + i)))
    else:
        for i in range(0, k * 4, 32):
            st_f32x8(x + i, mul_f32x8(relu2_8(ld_f32x8(x + i)), ld_f32x8(y + i)))


@inner
def clamped_times(x, y, k, limit):
    """k floats at x: their clamped curve times those at y."""
    one, most, least = sp_f32x8(f32(1.0)), sp_f32x8(limit), sp_f32x8(-limit)
    for i in range(0, k * 4, 32):
        g, u = smaller(most, ld_f32x8(x + i)), greater(least, smaller(most, ld_f32x8(y + i)))
        bent = div_f32x8(g, add_f32x8(one, exp8(mul_f32x8(sp_f32x8(f32(-SLOPE)), g))))
        st_f32x8(x + i, mul_f32x8(bent, add_f32x8(u, one)))
