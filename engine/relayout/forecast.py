"""Reads from disk that a token will need, before and after, from recorded heat. Not here: measuring them.

An expert is used with the chance of its share of its layer's heat, times the experts that a token uses; a cache of so
many bytes holds the hottest. A read is one stretch of whole 4096-byte blocks, as direct reads are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.gguf.layout import padded
from engine.relayout.order import ALIGNMENT, ExpertLayer
from engine.weights.heat import Heat, chances


@dataclass(frozen=True, slots=True)
class Reads:
    """Per token, with `cache_bytes` of the hottest experts in memory: experts missed, reads and bytes of both files."""

    cache_bytes: int
    cached_experts: int
    missed: float
    reads_before: float
    bytes_before: float
    reads_after: float
    bytes_after: float


def forecast(layers: Sequence[ExpertLayer], heat: Heat, n_used: int, cache_bytes: int) -> Reads:
    """What a token reads with a cache of so many bytes."""
    used = chances(heat, n_used)
    hottest = sorted(
        ((used[i][e], i, e) for i, layer in enumerate(layers) for e in range(layer.n_experts)),
        key=lambda one: (-one[0], one[1], one[2]),
    )
    room, n_cached = cache_bytes, 0
    for _, i, _ in hottest:
        if layers[i].expert_bytes > room:
            break
        room -= layers[i].expert_bytes
        n_cached += 1
    missed = before = after = 0.0
    for chance, i, expert in hottest[n_cached:]:
        missed += chance
        pieces = layers[i].pieces(expert)
        before += chance * sum(_blocks(p.source.offset + p.start, p.n_bytes) for p in pieces)
        after += chance * sum(padded(p.n_bytes, ALIGNMENT) for p in pieces)
    return Reads(cache_bytes, n_cached, missed, 3 * missed, before, missed, after)


def _blocks(start: int, n_bytes: int) -> int:
    """Bytes of the whole blocks that these bytes touch."""
    return padded(start + n_bytes, ALIGNMENT) - start // ALIGNMENT * ALIGNMENT
