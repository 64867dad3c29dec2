"""Brings the experts that a step needs into a cache's slots, before they are multiplied. Not here: whose memory the
slots are, what is remembered of a use over steps (weights/experts.py), waiting for a read (places.py).

    fetch record   1 cache   2 layer   3 needed (route.py)   4 the same of a wave   5 its order i64 [2 * experts]
                   6 number of the wave

    cache   RING of the readers, FD to read from, DROP (1: give cached pages back), STAMP of the last wave, GAIN (f32,
            heat of one use in this step), WAVES of the layer that is being computed, HITS, MISSES, TRACE (address of
            i64 how many, room, then expert + layer * 2^20 + rows * 2^40 of each use; 0: nobody asks), READ (bytes
            asked for)
    pool    N_SLOTS, HEADS: slots of one size
    layer   POOL, its first PLACE, HEAT (f32 of each expert), SOURCES (i64 [experts][3] offsets in the file), SIZES and
            PARTS (i64 [3] each): bytes of gate, up and down, and where in a slot they may begin; NUMBER, N_READS (3, or
            1 where each expert is one stretch of the file, gate, up and down, that one read brings)
    head    of a slot: its reads (places.py), OWNER (the place of the expert in it, 0: none), HEAT_AT (address of that
            expert's heat), BUSY (stamp of the last wave that used it), MEMORY

Thread 0 does it behind `group`, all others meet it at the barrier. Where a layer's needed experts are more than the
slots there are several waves, half of the slots each: while one is computed the next one is read. A slot is given to
another expert only when no wave that is computed or read uses it; the one whose expert has the least heat goes. Heat is
uses, each worth half as much after some hundred tokens: least recently and least frequently used in one number (LRFU,
Lee et al. 2001, doi:10.1109/TC.2001.970573). What is cached decides what is read and nothing else.
"""

from engine.kernels.disk import BLOCK
from engine.kernels.jit import inner, kernel, op
from engine.kernels.places import APART, PLACE, READS, UP, place
from engine.kernels.ring import DROP as GIVE_BACK
from engine.kernels.ring import FD as READ_FD
from engine.kernels.ring import LENGTH, NEEDED, OFFSET, REQUEST, STATE, TO, post
from engine.kernels.route import expert_of, first_slot, n_needed
from engine.kernels.simd import f32, ld_f32, ld_i64, st_f32, st_i64
from engine.kernels.sync import atomic_load, atomic_store

RING, FD, DROP, STAMP, GAIN, WAVES, HITS, MISSES, TRACE, READ = range(0, 80, 8)
CACHE_BYTES = 128
N_SLOTS, HEADS = 0, 8
POOL_BYTES = 64
POOL, PLACES, HEAT, SOURCES, SIZES, PARTS, NUMBER, N_READS = 0, 8, 16, 24, 32, 56, 80, 88
LAYER_BYTES = 128
OWNER, HEAT_AT, BUSY, MEMORY = 3 * REQUEST + 16, 3 * REQUEST + 24, 3 * REQUEST + 32, 3 * REQUEST + 40
HEAD = 4 * REQUEST  # bytes
LAYER_AT, ROWS_AT = 1 << 20, 1 << 40  # in a use that is written down
MOST = 512  # experts of a wave: three requests each, of two waves, must find room in the ring beside other reads


@inner
def _coldest(pool, least):
    """The head of an empty slot, else of the one with the least heat among those last used before stamp `least`."""
    heads, best, cold = ld_i64(pool + HEADS), 0, f32(0.0)
    for s in range(ld_i64(pool + N_SLOTS)):
        head = heads + s * HEAD
        if ld_i64(head + OWNER) == 0:
            return head
        if ld_i64(head + BUSY) < least:
            heat = ld_f32(ld_i64(head + HEAT_AT))
            if best == 0 or heat < cold:
                best, cold = head, heat
    return best


@inner
def _ask(cache, request, offset, n_bytes, to):
    """Describe a read of n_bytes from `offset` on into `to`, a multiple of BLOCK; returns where the first of them comes
    to lie."""
    start = offset & -BLOCK
    needed = offset - start + n_bytes
    length = (needed + BLOCK - 1) & -BLOCK
    st_i64(request + READ_FD, ld_i64(cache + FD))
    st_i64(request + OFFSET, start)
    st_i64(request + LENGTH, length)
    st_i64(request + TO, to)
    st_i64(request + NEEDED, needed)
    st_i64(request + GIVE_BACK, ld_i64(cache + DROP))
    st_i64(cache + READ, ld_i64(cache + READ) + length)
    atomic_store(request + STATE, 0)
    return to + offset - start


@inner
def _bring(cache, layer, expert, head, stamp):
    """Have an expert read into a slot, in place of the one that is there."""
    old, at, n_reads = ld_i64(head + OWNER), ld_i64(layer + PLACES) + expert * PLACE, ld_i64(layer + N_READS)
    if old != 0:
        st_i64(old + READS, 0)
    st_i64(head + OWNER, at)
    st_i64(head + HEAT_AT, ld_i64(layer + HEAT) + expert * 4)
    st_i64(head + BUSY, stamp)
    st_i64(head + APART, REQUEST if n_reads == 3 else 0)
    sources, memory = ld_i64(layer + SOURCES) + expert * 24, ld_i64(head + MEMORY)
    first, last, first_at = ld_i64(sources), ld_i64(sources + 16) + ld_i64(layer + SIZES + 16), 0
    if n_reads == 1:
        first_at = _ask(cache, head, first, last - first, memory)
    for part in range(3):
        offset, r = ld_i64(sources + part * 8), head + part * REQUEST
        if n_reads == 1:
            st_i64(at + part * 8, first_at + offset - first)
        else:
            n_bytes, to = ld_i64(layer + SIZES + part * 8), memory + ld_i64(layer + PARTS + part * 8)
            st_i64(at + part * 8, _ask(cache, r, offset, n_bytes, to))
    st_i64(at + READS, head)
    for part in range(n_reads):
        post(ld_i64(cache + RING), head + part * REQUEST)


@inner
def _claim(cache, layer, needed, first, end, stamp, least):
    """Slots for the needed experts first..end-1, of which those that are missing are read."""
    places, n_missing = ld_i64(layer + PLACES), 0
    for i in range(first, end):
        head = place(places, expert_of(needed, i), READS)
        if head != 0:
            st_i64(head + BUSY, stamp)
    for i in range(first, end):
        expert = expert_of(needed, i)
        if place(places, expert, READS) == 0:
            _bring(cache, layer, expert, _coldest(ld_i64(layer + POOL), least), stamp)
            n_missing += 1
    st_i64(cache + STAMP, stamp)
    st_i64(cache + MISSES, ld_i64(cache + MISSES) + n_missing)
    st_i64(cache + HITS, ld_i64(cache + HITS) + end - first - n_missing)


@inner
def _note(trace, layer, needed):
    """Write down who is used, as far as there is room."""
    for i in range(n_needed(needed)):
        n = ld_i64(trace)
        if n < ld_i64(trace + 8):
            rows = first_slot(needed, i + 1) - first_slot(needed, i)
            st_i64(trace + 16 + n * 8, expert_of(needed, i) + ld_i64(layer + NUMBER) * LAYER_AT + rows * ROWS_AT)
            st_i64(trace, n + 1)


@inner
def _warm(cache, layer, needed):
    """A use is worth GAIN for each row."""
    heat, gain = ld_i64(layer + HEAT), ld_f32(cache + GAIN)
    for i in range(n_needed(needed)):
        at = heat + expert_of(needed, i) * 4
        st_f32(at, ld_f32(at) + gain * f32(first_slot(needed, i + 1) - first_slot(needed, i)))


@inner
def _list(places, needed, first, end, wave, order):
    """The needed experts first..end-1 as a list of their own, to begin with those that are in memory."""
    n, n_here, n_missing = end - first, 0, 0
    st_i64(wave, n)
    st_i64(wave + 8, order)
    for i in range(n):
        expert = expert_of(needed, first + i)
        st_i64(wave + 16 + i * 16, expert)
        st_i64(wave + 24 + i * 16, first_slot(needed, first + i))
        head = place(places, expert, READS)
        if atomic_load(head) == 1 and atomic_load(head + UP // 8 * ld_i64(head + APART)) == 1:
            st_i64(order + n_here * 8, i)
            n_here += 1
        else:
            st_i64(order + (n + n_missing) * 8, i)
            n_missing += 1
    st_i64(wave + 24 + n * 16, first_slot(needed, end))
    for j in range(n_missing):
        st_i64(order + (n_here + j) * 8, ld_i64(order + (n + j) * 8))


@op
def fetch(o, tid, nth, st):
    """One wave's experts get slots, in the first wave the second's, too; in each the next one's."""
    if tid != 0:
        return
    cache, layer, needed, w = ld_i64(o + 8), ld_i64(o + 16), ld_i64(o + 24), ld_i64(o + 48)
    n, slots, stamp = n_needed(needed), ld_i64(ld_i64(layer + POOL) + N_SLOTS), ld_i64(cache + STAMP)
    size = n if n <= min(slots, MOST) else min(slots // 2, MOST)
    n_waves = (n + size - 1) // size
    if w == 0:
        stamp += 1
        _warm(cache, layer, needed)
        if ld_i64(cache + TRACE) != 0:
            _note(ld_i64(cache + TRACE), layer, needed)
        st_i64(cache + WAVES, n_waves)
        _claim(cache, layer, needed, 0, size, stamp, stamp)
    if w + 1 < n_waves:
        _claim(cache, layer, needed, (w + 1) * size, min(n, (w + 2) * size), stamp + 1, stamp)
    _list(ld_i64(layer + PLACES), needed, w * size, min(n, (w + 1) * size), ld_i64(o + 32), ld_i64(o + 40))


@kernel(4)
def bring(cache, layer, expert, head):
    """From Python, while no step runs: as `fetch` would."""
    _bring(cache, layer, expert, head, ld_i64(cache + STAMP))
