"""The fixed set: within its bytes, whole, evenly spread, pairs together; the ring's slots."""

import subprocess
import sys

import pytest

from engine.weights.pinning import LEAST_CHUNKS, MIB, SLACK, Extent, split

ROW = 2304  # of 4096 weights in Q4_K
LAYER = [("attn_q", 512), ("attn_k", 128), ("attn_v", 128), ("attn_output", 512),
         ("ffn_gate", 1792), ("ffn_up", 1792), ("ffn_down", 512)]  # fmt: skip


def model(n_layers: int = 16) -> list[Extent]:
    return [
        Extent(f"blk.{i}.{name}.weight", 8 * ROW * (4 if name == "ffn_down" else 1), n)
        for i in range(n_layers)
        for name, n in LAYER
    ] + [Extent("output.weight", 8 * 3360, 6144)]


TOTAL = sum(e.n_panels * e.panel_bytes for e in model())


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.62, 0.9, 0.999, 1.0, 2.0])
def test_every_panel_is_in_one_unit_and_what_stays_is_within_its_bytes(share):
    found = split(model(), int(TOTAL * share))
    for i, extent in enumerate(model()):
        cuts = [cut for unit in found.units for cut in unit.cuts if cut.matrix == i]
        assert [c.first for c in cuts] == [0, *(c.end for c in cuts[:-1])] and cuts[-1].end == extent.n_panels
        assert all((c.end - c.first) * extent.panel_bytes <= found.chunk_bytes for c in cuts)
    assert found.pinned_bytes + found.streamed_bytes == TOTAL
    wanted = min(TOTAL, int(TOTAL * share))
    assert wanted - 9 * MIB < found.pinned_bytes <= wanted
    assert (found.streamed_bytes == 0) == (share >= 1)


def test_what_is_read_is_spread_evenly_over_the_order_of_use():
    """In any stretch the bytes read are the same share, but for a unit or two: disk and compute overlap all along."""
    found = split(model(), int(TOTAL * 0.6))
    for width in (8, 30, 100):
        for first in range(0, len(found.units) - width, 7):
            stretch = range(first, first + width)
            size = sum(found.units[i].n_bytes for i in stretch)
            kept = sum(found.units[i].n_bytes for i in stretch if found.stays[i])
            assert abs(kept - 0.6 * size) <= 2 * 8 * MIB


def test_gate_and_up_are_cut_and_kept_together():
    extents = [Extent("blk.0.ffn_gate.weight", 1000, 999), Extent("blk.0.ffn_up.weight", 4000, 999)]
    found = split(extents, 2_000_000, 16 * 108_192)
    assert {len(unit.cuts) for unit in found.units} == {2}
    assert all(a.first == b.first and a.end == b.end for a, b in (unit.cuts for unit in found.units))
    assert max((c.end - c.first) * 4000 for unit in found.units for c in unit.cuts) <= found.chunk_bytes == 100_000


@pytest.mark.parametrize("ring", [1, 100_000, MIB, 16 * MIB, 64 * MIB, 1 << 30])
def test_the_ring_keeps_within_its_bytes_once_four_chunks_fit(ring):
    found = split(model(), TOTAL // 2, ring)
    n_chunks = sum(len(u.cuts) for u, stays in zip(found.units, found.stays, strict=True) if not stays)
    assert LEAST_CHUNKS <= found.n_slots <= n_chunks
    assert found.n_slots * (found.chunk_bytes + SLACK) <= ring or found.n_slots == LEAST_CHUNKS
    assert found.chunk_bytes <= 4 * MIB


def test_few_chunks_have_a_slot_each_and_none_need_none():
    few = split([Extent("a", 1000, 30)], 0)
    assert (len(few.units), few.n_slots) == (1, 1)
    assert split([Extent("a", 1000, 30)], 30_000).n_slots == 0
    nothing = split([Extent("short", 1000, 0)], 0)
    assert (nothing.units, nothing.n_slots, nothing.streamed_bytes) == ((), 0, 0)


def test_planning_a_stream_takes_no_numba():
    code = "import sys, engine.weights.pinning; assert 'numba' not in sys.modules and 'numpy' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
