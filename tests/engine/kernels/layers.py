"""One attention layer with a real cache, run op by op on rows of several sequences. Not here: what it should give."""

import math
from threading import Thread

import numba
import numpy as np

from engine.cache.kv import KvCache, KvSequence
from engine.kernels import step
from engine.kernels.attention import attend, kv_module, layer_block, merge_row, parts_bytes, scratch_bytes
from engine.kernels.kv import store_k, store_v
from engine.kernels.rope import rope_q, rope_table

TABLE = {hd: rope_table(1024, hd, 10000.0) for hd in (8, 16, 32, 40, 64, 96, 128)}


@numba.njit(nogil=True)
def merge_all(st, n_rows, parts, max_tiles, layer, out, row_bytes):  # type: ignore[no-untyped-def]
    for row in range(n_rows):
        merge_row(st, row, parts, max_tiles, layer, out + row * row_bytes)


class Layer:
    """The second layer of two; `turned` holds the last step's qkv, rotated, its queries scaled."""

    def __init__(
        self, group: int, head_dim: int, k: str = "f16", v: str = "f16", n_kv: int = 2, *, window: int = 0,
        soft_cap: float = 0.0, sinks: np.ndarray | None = None, v_dim: int = 0,
    ) -> None:  # fmt: skip
        self.n_heads, self.n_kv, self.head_dim, self.k, self.v = group * n_kv, n_kv, head_dim, k, v
        self.v_dim = v_dim or head_dim
        self.cache = KvCache(2048, 2, n_kv, head_dim, k, v, n_seqs=3, v_dim=v_dim)
        self.offset = self.cache.layer_bytes  # the second layer of two
        self.ld = (self.n_heads + n_kv) * head_dim + n_kv * self.v_dim
        self.max_tiles = 8
        self.window, self.soft_cap, self.sinks = window, soft_cap, sinks
        self.block = layer_block(
            self.ld, self.n_heads, n_kv, head_dim, self.offset, self.cache.head_bytes, self.cache.k_bytes, window,
            soft_cap, 0 if sinks is None else sinks.ctypes.data, v_dim=v_dim,
        )  # fmt: skip

    def run(self, rows: list[tuple[KvSequence, int, np.ndarray]], n_threads: int = 1) -> np.ndarray:
        """Store and attend; (rows, n_heads * v_dim)."""
        n, hd, vd, cache = len(rows), self.head_dim, self.v_dim, self.cache
        qkv = self.turned = np.array([x for _, _, x in rows], np.float32)
        positions = np.array([p for _, p, _ in rows], np.int64)
        pages = np.array([s.address for s, _, _ in rows], np.int64)
        block = np.zeros(step.N_WORDS, np.int64)
        block[[step.N_ROWS // 8, step.POSITIONS // 8, step.PAGES // 8]] = n, positions.ctypes.data, pages.ctypes.data
        block[step.SEEN // 8] = positions.ctypes.data
        parts = np.full(parts_bytes(n, self.max_tiles, self.n_heads, vd) // 4, np.nan, np.float32)
        scratch_size = scratch_bytes(self.n_heads, self.n_kv, hd, vd)
        scratch = np.full(scratch_size * n_threads // 4 + 1, np.nan, np.float32)
        scratch[-1] = 7
        key, value = qkv.ctypes.data + self.n_heads * hd * 4, qkv.ctypes.data + (self.n_heads + self.n_kv) * hd * 4
        scale = int(np.float32(1 / math.sqrt(hd)).view(np.int32))
        table, mk, mv = TABLE[hd].ctypes.data, kv_module(self.k), kv_module(self.v)
        program = [
            (rope_q, [qkv.ctypes.data, self.ld, self.n_heads, hd, hd, table, 0, scale]),
            (store_k, [key, self.ld, self.n_kv, hd, hd, table, 0, self.offset, cache.head_bytes,
                       mk.put_k.address]),
            (store_v, [value, self.ld, self.n_kv, vd, self.offset + cache.k_bytes, cache.head_bytes,
                       mv.put_v.address]),
            (attend, [
                qkv.ctypes.data, self.block.address, mk.prepare.address, mk.scores.address, mv.mix.address,
                parts.ctypes.data, self.max_tiles, scratch.ctypes.data,
            ]),
        ]  # fmt: skip
        for op, words in program:
            counter, record = np.zeros(1, np.int64), np.zeros(16, np.int64)
            record[1 : 1 + len(words)], record[15] = words, counter.ctypes.data
            _ = op.address
            args = [(record.ctypes.data, t, n_threads, block.ctypes.data) for t in range(n_threads)]
            threads = [Thread(target=op, args=a) for a in args[1:]]
            for t in threads:
                t.start()
            op(*args[0])
            for t in threads:
                t.join()
        out = np.full((n, self.n_heads * vd), np.nan, np.float32)
        merge_all(
            block.ctypes.data, n, parts.ctypes.data, self.max_tiles, self.block.address, out.ctypes.data, out.strides[0]
        )
        assert scratch[-1] == 7
        return out

    def inputs(self, n: int, seed: int = 0) -> np.ndarray:
        return np.random.default_rng(seed).standard_normal((n, self.ld)).astype(np.float32)

    def fill(self, x: np.ndarray, chunk: int, n_threads: int = 1) -> np.ndarray:
        """All rows of one new sequence, `chunk` at a time."""
        sequence, out = self.cache.open(), []
        for start in range(0, len(x), chunk):
            some = x[start : start + chunk]
            sequence.reserve(len(some))
            out.append(self.run([(sequence, start + i, r) for i, r in enumerate(some)], n_threads))
            sequence.advance(len(some))
        sequence.close()
        return np.concatenate(out)
