"""Attention over a compressed row against float64 with whole keys and values; the same bits in every way."""

import importlib
import math
from itertools import pairwise
from threading import Thread

import numpy as np
import pytest

from engine.cache.kv import KvCache
from engine.kernels import step
from engine.kernels.act import act_bytes
from engine.kernels.attention import attend, kv_module, layer_block, parts_bytes, scratch_bytes
from engine.kernels.heads import heads
from engine.kernels.latent import merge_heads, store_heads, store_row, turn_queries
from engine.kernels.matmul import scratch_bytes as product_bytes
from engine.kernels.rope import rope_table
from engine.quants.registry import TYPES
from tests.blocks import dequantise, quantise

HEADS, PLAIN, ROPE, RANK, V = 5, 64, 32, 96, 64
EPS = 1e-6
TABLE = rope_table(512, ROPE, 10000.0)


def matrices(kind: str) -> tuple[bytes, bytes, np.ndarray, np.ndarray]:
    """W_k (heads, RANK, PLAIN) and W_v (heads, V, RANK) as a file has them, and their float values."""
    rng = np.random.default_rng(4)
    w_k, w_v = rng.normal(0, PLAIN**-0.5, (HEADS, RANK, PLAIN)), rng.normal(0, RANK**-0.5, (HEADS, V, RANK))
    k, v = quantise(w_k, kind), quantise(w_v, kind)
    return k, v, dequantise(k, kind, w_k.shape), dequantise(v, kind, w_v.shape)


def inputs(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries (n, heads * (PLAIN + ROPE)), rows (n, RANK + ROPE), the norm's weight."""
    rng = np.random.default_rng(n)
    q, c = rng.normal(0, 1, (n, HEADS * (PLAIN + ROPE))), rng.normal(0, 2, (n, RANK + ROPE))
    return q.astype(np.float32), c.astype(np.float32), rng.normal(1, 0.1, RANK).astype(np.float32)


def turned(x: np.ndarray) -> np.ndarray:
    """(positions, ..., ROPE) by position, neighbours together."""
    angle = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(0, ROPE, 2) / ROPE)
    z = x[..., 0::2] + 1j * x[..., 1::2]
    z = z * np.exp(1j * angle).reshape(len(x), *[1] * (x.ndim - 2), -1)
    return np.stack([z.real, z.imag], -1).reshape(x.shape)


def expected(q: np.ndarray, c: np.ndarray, weight: np.ndarray, w_k: np.ndarray, w_v: np.ndarray) -> np.ndarray:
    """(n, heads, V): keys and values of every head made from the row, then attention, in float64."""
    n = len(q)
    q, c, w_k, w_v = (x.astype(np.float64) for x in (q, c, w_k, w_v))
    row = c[:, :RANK] / np.sqrt((c[:, :RANK] ** 2).mean(1, keepdims=True) + EPS) * weight
    q = q.reshape(n, HEADS, -1)
    out = np.zeros((n, HEADS, V))
    for h in range(HEADS):
        keys = np.concatenate([row @ w_k[h], turned(c[:, RANK:])], 1)
        query = np.concatenate([q[:, h, :PLAIN], turned(q[:, h, PLAIN:])], 1)
        s = query @ keys.T / math.sqrt(PLAIN + ROPE)
        s[np.triu_indices(n, 1)] = -np.inf
        p = np.exp(s - s.max(1, keepdims=True))
        out[:, h] = p / p.sum(1, keepdims=True) @ (row @ w_v[h].T)
    return out


class Steps:
    """Ops run one after the other on rows first..first + n - 1 of a sequence."""

    def __init__(self, first: int, n: int, sequence: object, threads: int) -> None:
        self.positions = np.arange(first, first + n)
        self.pages = np.full(n, sequence.address)  # type: ignore[attr-defined]
        self.block = np.zeros(step.N_WORDS, np.int64)
        self.block[step.N_ROWS // 8] = n
        self.block[[step.POSITIONS // 8, step.PAGES // 8]] = self.positions.ctypes.data, self.pages.ctypes.data
        self.block[step.SEEN // 8] = self.positions.ctypes.data
        self.threads = threads

    def run(self, op: object, *words: int | float) -> None:
        record, counter = np.zeros(16, np.int64), np.zeros(1, np.int64)
        for i, word in enumerate(words, 1):
            if isinstance(word, float):
                record[i : i + 1].view(np.float32)[0] = word
            else:
                record[i] = word
        record[15] = counter.ctypes.data
        _ = op.address  # type: ignore[attr-defined]
        words_at, block = record.ctypes.data, self.block.ctypes.data
        team = [Thread(target=op, args=(words_at, t, self.threads, block)) for t in range(self.threads)]  # type: ignore[arg-type]
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()


def room(n_bytes: int) -> np.ndarray:
    """At least so many bytes of rubbish that begin on a line."""
    raw = np.full(n_bytes + 64, 0xFF, np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + n_bytes]


def latent(kind: str, kv: str, n: int, chunk: int, threads: int = 1, stretches: int = 1) -> np.ndarray:
    """(n, HEADS * V) by the ops, `chunk` rows a step, W_k and W_v in so many stretches."""
    k_bytes, v_bytes, _, _ = matrices(kind)
    q, c, weight = inputs(n)
    quant = importlib.import_module(TYPES[kind].module)
    cache = KvCache(512, 2, 1, RANK + ROPE, kv, kv, v_dim=RANK)
    sequence, module, out = cache.open(), kv_module(kv), []
    ld, act, layer = HEADS * (RANK + ROPE), quant.ACT, cache.layer_bytes
    block = layer_block(ld, HEADS, 1, RANK + ROPE, layer, cache.head_bytes, cache.k_bytes, v_dim=RANK)
    scratch_size = max(product_bytes(4096 * 8), 4 * RANK, scratch_bytes(HEADS, 1, RANK + ROPE, RANK))
    scratch = room(scratch_size * threads)

    def times(steps: Steps, data: bytes, rows: int, k: int, acts: np.ndarray, y: np.ndarray, stride: int) -> None:
        w, row = np.frombuffer(data, np.uint8), TYPES[kind].row_bytes(k)
        panels = HEADS * rows // 8
        cuts = [panels * i // stretches for i in range(stretches + 1)]
        for first, end in pairwise(cuts):
            steps.run(
                heads, w.ctypes.data + first * 8 * row, quant.rows.address, acts.ctypes.data, act_bytes(act, k, 1),
                k // TYPES[kind].items, y.ctypes.data, y.strides[0], stride, rows // 8, first, end - first,
                scratch.ctypes.data, scratch_size, 1,
            )  # fmt: skip

    for start in range(0, n, chunk):
        some = min(chunk, n - start)
        sequence.reserve(some)
        steps = Steps(start, some, sequence, threads)
        x, row = q[start : start + some].copy(), c[start : start + some].copy()
        queries = np.full((some, ld), np.nan, np.float32)
        acts_k, acts_v = (room(HEADS * act_bytes(act, k, some)) for k in (PLAIN, RANK))
        formats = (lambda a: (a.ctypes.data, 0) if act == "f32" else (0, a.ctypes.data))  # noqa: E731
        steps.run(
            turn_queries, x.ctypes.data, x.shape[1], HEADS, PLAIN, ROPE, TABLE.ctypes.data,
            1 / math.sqrt(PLAIN + ROPE), queries.ctypes.data, ld, RANK, *formats(acts_k), scratch.ctypes.data,
            scratch_size,
        )  # fmt: skip
        steps.run(
            store_row, row.ctypes.data, RANK + ROPE, RANK, ROPE, TABLE.ctypes.data, weight.ctypes.data, EPS,
            block.address, module.put_k.address, module.put_v.address,
        )  # fmt: skip
        times(steps, k_bytes, RANK, PLAIN, acts_k, queries, (RANK + ROPE) * 4)
        parts = room(parts_bytes(some, 2, HEADS, RANK))
        steps.run(
            attend, queries.ctypes.data, block.address, module.prepare.address, module.scores.address,
            module.mix.address, parts.ctypes.data, 2, scratch.ctypes.data,
        )  # fmt: skip
        steps.run(
            merge_heads, parts.ctypes.data, 2, block.address, RANK, *formats(acts_v), scratch.ctypes.data, scratch_size
        )  # fmt: skip
        result = np.full((some, HEADS * V), np.nan, np.float32)
        times(steps, v_bytes, V, RANK, acts_v, result, V * 4)
        out.append(result)
        sequence.advance(some)
    return np.concatenate(out)


@pytest.mark.parametrize(("kind", "kv", "bound"), [("F32", "f32", 2e-5), ("Q8_0", "f16", 6e-2), ("Q8_0", "q8_0", 8e-2)])
def test_one_row_for_all_heads_is_attention_over_whole_keys_and_values(kind: str, kv: str, bound: float) -> None:
    _, _, w_k, w_v = matrices(kind)
    want = expected(*inputs(40), w_k, w_v).reshape(40, -1)
    assert np.abs(latent(kind, kv, 40, 40) - want).max() < bound


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_a_row_has_the_same_bits_in_every_step_and_stretch(kind: str) -> None:
    whole = latent(kind, "f16", 270, 270)
    assert np.isfinite(whole).all()
    for chunk, threads, stretches in [(64, 3, 1), (1, 2, 1), (2, 1, 7), (9, 2, 3)]:
        assert np.array_equal(latent(kind, "f16", 270, chunk, threads, stretches), whole), (chunk, threads, stretches)


def test_keys_and_values_of_each_head_are_the_same_attention() -> None:
    """Files of old: W_k and W_v are multiplied with the row, each head has keys and values of its own."""
    n, chunk = 40, 7
    _, _, w_k, w_v = matrices("F32")
    q, c, weight = inputs(n)
    cache = KvCache(512, 2, HEADS, PLAIN + ROPE, "f32", "f32", v_dim=V)
    sequence, module, layer, out = cache.open(), kv_module("f32"), cache.layer_bytes, []
    ld = q.shape[1]
    block = layer_block(ld, HEADS, HEADS, PLAIN + ROPE, layer, cache.head_bytes, cache.k_bytes, v_dim=V)
    row = c[:, :RANK].astype(np.float64)
    row = (row / np.sqrt((row**2).mean(1, keepdims=True) + EPS) * weight)[:, None]
    kv = np.concatenate([np.einsum("nor,hrp->nhp", row, w_k), np.einsum("nor,hvr->nhv", row, w_v)], 2)
    kv, rotated = kv.reshape(n, -1).astype(np.float32), np.ascontiguousarray(c[:, RANK:])
    x = q.reshape(n, HEADS, -1).astype(np.float64).copy()
    x[..., PLAIN:] = turned(x[..., PLAIN:])
    x = (x / math.sqrt(PLAIN + ROPE)).reshape(n, -1).astype(np.float32)
    scratch = room(scratch_bytes(HEADS, HEADS, PLAIN + ROPE, V) * 2)
    for start in range(0, n, chunk):
        some = min(chunk, n - start)
        sequence.reserve(some)
        steps = Steps(start, some, sequence, 2)
        made, parts = kv[start : start + some].copy(), room(parts_bytes(some, 2, HEADS, V))
        steps.run(
            store_heads, made.ctypes.data, made.shape[1], HEADS, PLAIN, V, rotated[start:].ctypes.data, ROPE, ROPE,
            TABLE.ctypes.data, block.address, module.put_k.address, module.put_v.address,
        )  # fmt: skip
        steps.run(
            attend, x[start:].ctypes.data, block.address, module.prepare.address, module.scores.address,
            module.mix.address, parts.ctypes.data, 2, scratch.ctypes.data,
        )  # fmt: skip
        merged = room(HEADS * some * V * 4)
        steps.run(merge_heads, parts.ctypes.data, 2, block.address, V, merged.ctypes.data, 0, scratch.ctypes.data,
                  scratch.nbytes // 2)  # fmt: skip
        out.append(merged.view(np.float32).reshape(HEADS, some, V).swapaxes(0, 1).reshape(some, -1))
        sequence.advance(some)
    assert np.abs(np.concatenate(out) - expected(q, c, weight, w_k, w_v).reshape(n, -1)).max() < 2e-5
