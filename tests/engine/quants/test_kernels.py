"""Every kernel of every type equals its numpy twin bit for bit, in every layout and width."""

import importlib

import numpy as np
import pytest

from engine.kernels.act import act_bytes, quantise
from engine.kernels.isa import ISA
from engine.kernels.jit import kernel
from engine.quants.registry import FOLDED, TYPES, by_name
from tests.engine.quants import twins

KINDS = [*TYPES, *FOLDED]
ROWS = 24  # three panels: a pair and one alone
SCALES = {"Q6_K": 208, "TQ2_0": 64, "Q2_K": 80, "Q3_K": 108, "TQ1_0": 52}  # where d stands, if not first
MINIMA = ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K")  # m stands behind d


@kernel(5)
def _quantise(x, k, act, T, t):
    quantise(x, k, act, T, t)


def module(kind: str):
    return importlib.import_module(by_name(kind).module)


def address(a: np.ndarray) -> int:
    return a.ctypes.data


def columns(kind: str) -> int:
    """Two blocks of the large kind, three of the small one."""
    return 512 if by_name(kind).items == 256 else 96


def blocks_of(kind: str, case: str, rng: np.random.Generator) -> np.ndarray:
    """Random or adversarial file bytes (rows, blocks, bytes of a block)."""
    row = by_name(kind)
    shape = (ROWS, columns(kind) // row.items, row.n_bytes)
    if kind in ("F32", "F16", "BF16"):
        w = {"random": rng.standard_normal(shape[:2]), "zeros": np.zeros(shape[:2]),
             "extreme": rng.choice([6e4, -6e4, 1e-7, -1e-7], shape[:2]),
             "subnormal": rng.choice([6e-8, -6e-8, 0.0], shape[:2]),
             "all-max": np.full(shape[:2], 6.5e4)}[case]  # fmt: skip
        w = w.astype(np.float32)
        if kind == "BF16":
            return (w.view(np.uint32) >> 16).astype(np.uint16)[..., None].view(np.uint8)
        return w.astype(np.float32 if kind == "F32" else np.float16)[..., None].view(np.uint8)
    raw = rng.integers(0, 256, shape, dtype=np.uint8)
    scale = {"random": rng.standard_normal(shape[:2]) * 0.02, "zeros": np.zeros(shape[:2]),
             "extreme": rng.choice([6e4, -6e4, 1e-4], shape[:2]),
             "subnormal": rng.choice([6e-8, -3e-7], shape[:2]), "all-max": np.full(shape[:2], 1.0)}[case]  # fmt: skip
    if case == "all-max":
        raw[:] = 0x80 if kind == "Q8_0" else 0xFF
        if kind == "Q6_K":
            raw[..., 192:208] = 0x80
    if kind == "MXFP4":
        e = {"random": rng.integers(100, 140, shape[:2]), "zeros": 0, "extreme": rng.choice([112, 128, 140], shape[:2]),
             "subnormal": rng.integers(0, 3, shape[:2]), "all-max": 128}[case]  # fmt: skip
        raw[..., 0] = e
        return raw
    if kind == "I2_S":
        raw[..., :4] = scale.astype(np.float32)[..., None].view(np.uint8)
        if case == "random":  # 3 stands for nothing
            raw[..., 4:] = (rng.integers(0, 3, (4, *shape[:2], 64)) << np.arange(0, 8, 2)[:, None, None, None]).sum(0)
        return raw
    if kind == "IQ1_M":  # a nibble of d in each of four words
        words = raw[..., 48:56].view(np.uint16)
        words &= 0x0FFF
        words |= (scale.astype(np.float16).view(np.uint16)[..., None] >> np.array([0, 4, 8, 12], np.uint16)) << 12
        return raw
    at = SCALES.get(kind, 0)
    raw[..., at : at + 2] = scale.astype(np.float16)[..., None].view(np.uint8)
    if kind in MINIMA:
        raw[..., at + 2 : at + 4] = (-8 * scale).clip(-6e4, 6e4).astype(np.float16)[..., None].view(np.uint8)
    return raw


def run(kind: str, layout: str, raw: np.ndarray, x: np.ndarray, ranges: list[tuple[int, int]]) -> np.ndarray:
    q = module(kind)
    tokens, n, K = len(x), raw.shape[1], x.shape[1]
    act = np.zeros(act_bytes(q.ACT, K, tokens) + 64, np.uint8)
    x = np.ascontiguousarray(x, np.float32)
    if q.ACT == "f32":
        act[: x.nbytes] = x.view(np.uint8).reshape(-1)
    else:
        spoiled = x.copy()
        for t in range(tokens):
            _quantise(address(spoiled) + t * K * 4, K, address(act), tokens, t)
    w = np.ascontiguousarray(raw)
    if layout == "panels":
        packed = np.zeros(w.nbytes, np.uint8)
        for p in range(ROWS // 8):
            q.pack(address(w) + p * 8 * n * q.ROW, n, address(packed) + p * n * q.PANEL)
        w = packed
    y = np.full((tokens, ROWS), np.nan, np.float32)
    scratch = np.zeros(tokens * 256 + 2 * n * q.PANEL + 64, np.uint8)
    body = q.panels if layout == "panels" else q.rows
    for t0, t1 in ranges:
        body(address(w), address(act), tokens, t0, t1, n, address(y), ROWS * 4, 0, ROWS // 8, address(scratch), 0)
    return y


CASES = ["random", "zeros", "extreme", "subnormal", "all-max"]


@pytest.mark.parametrize("layout", ["panels", "rows"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_kernel_equals_its_twin(kind, case, layout):
    rng = np.random.default_rng(len(kind) + CASES.index(case))
    raw = blocks_of(kind, case, rng)
    for tokens in (1, 2, 5, 16, 64, 257):
        x = rng.standard_normal((tokens, columns(kind))).astype(np.float32)
        x[0, :32] = 0
        x[:, 64:] *= np.float32(3)  # a block of outliers: the fine half is in use
        with np.errstate(over="ignore", invalid="ignore"):
            want = twins.matmul(kind, raw, x, ISA.fma)
        got = run(kind, layout, raw, x, [(0, tokens)])
        assert (got.view(np.int32) == want.view(np.int32)).all(), (tokens, np.abs(got - want).max())


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_does_not_feel_its_company(kind):
    rng = np.random.default_rng(7)
    raw, x = blocks_of(kind, "random", rng), rng.standard_normal((9, columns(kind))).astype(np.float32)
    whole = run(kind, "panels", raw, x, [(0, 9)])
    parts = run(kind, "panels", raw, x, [(0, 1), (1, 3), (3, 8), (8, 9)])
    alone = np.concatenate([run(kind, "rows", raw, x[t : t + 1], [(0, 1)]) for t in range(9)])
    assert whole.tobytes() == parts.tobytes() == alone.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_error_against_float_weights_is_within_the_activation_bound(kind):
    """int8 activations: at most half a step (max|x| / 254) per column, times the weight, plus float rounding."""
    rng = np.random.default_rng(11)
    raw, x = blocks_of(kind, "random", rng), rng.standard_normal((5, columns(kind))).astype(np.float32)
    w = twins.weights(kind, raw).astype(np.float64)
    exact = x.astype(np.float64) @ w.T
    step = np.abs(x.reshape(5, -1, 32)).max(-1).repeat(32, -1) / 254 if module(kind).ACT == "q32" else np.zeros_like(x)
    bound = step @ np.abs(w).T + 1e-5 * (np.abs(x) @ np.abs(w).T) + 1e-6
    assert (np.abs(run(kind, "panels", raw, x, [(0, 5)]) - exact) <= bound).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_unpacks_to_its_weights(kind):
    raw = blocks_of(kind, "random", np.random.default_rng(3))
    out = np.zeros((ROWS, columns(kind)), np.float32)
    flat = np.ascontiguousarray(raw)
    for r in range(ROWS):
        module(kind).unpack_row(address(flat) + r * flat[0].nbytes, raw.shape[1], address(out) + r * out.shape[1] * 4)
    assert (out == twins.weights(kind, raw)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_number_that_is_none_stays_visible(bad):
    """A damaged file must not turn into a fluent wrong answer: NaN and infinity survive quantisation as NaN."""
    raw, x = blocks_of("Q4_1", "random", np.random.default_rng(1)), np.ones((2, 96), np.float32)
    x[1, 40] = bad
    got = run("Q4_1", "panels", raw, x, [(0, 2)])
    assert np.isfinite(got[0]).all() and np.isnan(got[1]).all()
