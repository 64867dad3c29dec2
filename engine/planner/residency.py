"""How much of a streamed model stays in memory, in bytes. Not here: which matrices, how fast that is.

A token visits every dense matrix in a cycle, so a cache that forgets the oldest hits nothing: a fixed part is pinned
and always hits. Routed experts are drawn anew for each token: they get a cache, behind the dense matrices, since of
those every byte is read for certain.
"""

from typing import NamedTuple

from engine.footprint import Experts, ModelFacts

# What is read ahead, in pieces of a few MB over all layers: 64 MiB are no faster, 16 a tenth slower, 8 a fifth. Each of
# them cannot be pinned, so a stream of little has little of it: four pieces.
RING_BYTES, LEAST_RING_BYTES = 32 << 20, 16 << 20


class Residency(NamedTuple):
    """Bytes; see Plan."""

    pinned: int
    ring: int
    expert_cache: int
    stream_per_token: int


def residency(facts: ModelFacts, room: int, expert_cache: int | None = None) -> Residency:
    """How `room` bytes are best spent; `expert_cache` fixes the cache's part of it. The ring is counted, even where
    `room` is less."""
    dense, experts = facts.dense_bytes, facts.experts
    if experts is None:
        if room >= dense:
            return Residency(dense, 0, 0, 0)
        ring = _ring(dense, room)
        pinned = max(0, room - ring)
        return Residency(pinned, ring, 0, dense - pinned)
    slots = least_slots(experts)
    expert_cache = None if expert_cache is None else min(expert_cache, experts.n_bytes)
    for_dense = room - slots - (expert_cache or 0)
    ring = _ring(dense, for_dense) if for_dense < dense else 0
    left = max(0, room - ring - slots)
    if expert_cache is not None:
        pinned = min(dense, max(0, left - expert_cache))
        return Residency(pinned, ring + slots, expert_cache, dense - pinned)
    pinned = min(dense, left)
    return Residency(pinned, ring + slots, min(left - pinned, experts.n_bytes), dense - pinned)


def _ring(dense: int, room: int) -> int:
    """As much as is missing, within its bounds."""
    return min(dense, max(LEAST_RING_BYTES, min(RING_BYTES, dense - room)))


def least_slots(experts: Experts) -> int:
    """Room for the experts that one layer computes with and those that are read meanwhile."""
    return 2 * experts.n_used * experts.largest_bytes
