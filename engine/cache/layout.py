"""Bytes of cached keys and values: rows, pages, and the closed formula that planner and allocation share.

    bytes = sum over layers of KV heads x (K row + V row) x positions, positions rounded up to pages of 256

A layer with a window keeps what the rows of one step look at, wherever in a page that begins, and a page more.

Not here: the arena itself (kv.py), a page's inside (kernels/kv_*.py). Importing this costs neither numpy nor numba.
"""

from collections.abc import Sequence

from engine.errors import UsageError

# A page is one attention tile: at most 5% against contiguous, 64 positions cost 15 to 20%.
PAGE = 256
# Positions that a sequence can go back though a layer has a window: a refused guess, an answer begun anew.
BACK = PAGE
# Bytes of 32 elements, and what head_dim must be a multiple of.
KV_TYPES = {"f32": (128, 8), "f16": (64, 8), "bf16": (64, 8), "q8_0": (34, 32), "q4_0": (18, 32)}


def row_bytes(kv_type: str, head_dim: int, setting: str = "cache_type_k") -> int:
    """Bytes of one position of one head; UsageError for an unknown type or a head_dim it cannot hold."""
    if kv_type not in KV_TYPES:
        raise UsageError(f"{setting} is {kv_type!r}; use one of {', '.join(KV_TYPES)}", param=setting)
    n_bytes, multiple = KV_TYPES[kv_type]
    if head_dim % multiple:
        others = [t for t, (_, m) in KV_TYPES.items() if head_dim % m == 0]
        advice = f"use {', '.join(others[:-1])} or {others[-1]}" if others else "no cache type here can hold it"
        raise UsageError(
            f"{setting} {kv_type} needs heads of a multiple of {multiple} dimensions and this model's have {head_dim}; "
            f"{advice}",
            param=setting,
        )
    return head_dim * n_bytes // 32


def whole_pages(n: int) -> int:
    """`n` positions rounded up to pages."""
    return -(-n // PAGE) * PAGE


def kept_positions(n_ctx: int, window: int, rows: int) -> int:
    """Positions that a layer keeps of a context, in whole pages: all, or with a `window` those that `rows` new rows and
    BACK positions before them look at (window + rows + BACK - 1 in a row, which begin anywhere in a page)."""
    whole = whole_pages(n_ctx)
    return min(whole, whole_pages(window + rows - 2 + BACK) + PAGE) if window else whole


def position_bytes(k_dim: int, v_dim: int, type_k: str, type_v: str) -> int:
    """Bytes of one position of one KV head: its K row and its V row."""
    return row_bytes(type_k, k_dim, "cache_type_k") + row_bytes(type_v, v_dim, "cache_type_v")


def kv_bytes(
    n_kv_heads: Sequence[int], k_dim: int, v_dim: int, n_ctx: int, type_k: str, type_v: str,
    windows: Sequence[int] = (), rows: int = 512,
) -> int:  # fmt: skip
    """Bytes of one sequence of `n_ctx` positions: one number of heads per layer, 0 for a layer without a cache.

    `windows`: for each layer the positions it sees, 0 for all of them; `rows`: the most that a step adds.
    """
    kept = [kept_positions(n_ctx, window, rows) for window in windows or [0] * len(n_kv_heads)]
    positions = sum(heads * n for heads, n in zip(n_kv_heads, kept, strict=True))
    return positions * position_bytes(k_dim, v_dim, type_k, type_v)
