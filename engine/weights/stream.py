"""Weights that are larger than the memory: a fixed part packed in memory, the rest read from the file for every step.

    pinned     units that stay (pinning.py): panels in anonymous memory
    ring       slots that chunks of file rows are read into, in the order in which the program uses them

A chunk has one slot for ever and a slot is passed on from chunk to chunk: when the last thread is done with one, the
slot's next is posted, also over the border of a step. So the program names fixed addresses, and the readers run ahead
as far as the ring is long, over matrices, layers and tokens. What a step that was left leaves behind is forgotten: the
next one begins with an empty ring. Norms are copied, rows of the embedding are read one by one, experts have a cache of
their own (experts.py).

Not here: the threads that read (kernels/readers.py), the waiting (kernels/ring.py), how much is pinned (planner.py).
"""

import mmap
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from queue import SimpleQueue

import numpy as np

from engine.errors import ReadFailed
from engine.kernels import ring
from engine.kernels.disk import BLOCK
from engine.kernels.pack import pack_panels
from engine.kernels.places import Places
from engine.kernels.program import Buffer
from engine.kernels.readers import N_READERS, Readers
from engine.kernels.regions import live
from engine.weights.experts import ExpertCache, ExpertParts
from engine.weights.origin import ALIGNED, Origin
from engine.weights.pinning import SLACK, Cut, Extent, Split, split
from engine.weights.placement import GAP, Arena
from engine.weights.store import Store
from engine.weights.tensor import Matrix, Span, Visit

WORD = 8
HEAT_S = 60.0  # between two writings of the heat: 60 KB, 5 ms


class Stream:
    """What is read for every step. `split` says how much; `begin` before a step, `end` after it. `experts` is the cache
    of a mixture's experts."""

    def __init__(self, origin: Origin, plan: Split, keep: Sequence[Arena | Buffer]) -> None:
        self.origin, self.split, self._keep = origin, plan, keep
        self.experts: ExpertCache | None = None
        self.readers = Readers()
        self._slot_bytes = -(-(plan.chunk_bytes + SLACK) // BLOCK) * BLOCK
        self._slots = Arena(plan.n_slots * self._slot_bytes + BLOCK)
        self._first_slot = self._slots.take(plan.n_slots * self._slot_bytes, BLOCK)
        units = zip(plan.units, plan.stays, strict=True)
        self.n_chunks = sum(len(unit.cuts) for unit, stays in units if not stays)
        self._requests = Buffer(max(1, self.n_chunks) * ring.REQUEST)
        self._n_visits = 0
        self._is_running = False

    def visit(self, offset: int, n_bytes: int) -> Visit:
        """The next chunk in the order of use: n_bytes of the file from `offset` on."""
        i, n = self._n_visits, self.split.n_slots
        assert i < self.n_chunks and n_bytes <= self.split.chunk_bytes, (i, self.n_chunks, n_bytes)
        self._n_visits += 1
        slot = self._first_slot + i % n * self._slot_bytes
        start = offset & ALIGNED
        needed = offset + n_bytes - start
        length = -(-needed // BLOCK) * BLOCK
        assert length <= self._slot_bytes
        words = self._requests.view(np.int64).reshape(-1, ring.REQUEST // WORD)[i]
        for word, value in (
            (ring.FD, self.origin.fd), (ring.OFFSET, start), (ring.LENGTH, length), (ring.TO, slot),
            (ring.NEEDED, needed), (ring.DROP, int(not self.origin.is_direct)),
        ):  # fmt: skip
            words[word // WORD] = value
        follower = i + n if i + n < self.n_chunks else i % n
        return Visit(slot + offset - start, self.readers.ring, self._request(i), self._request(follower))

    def _request(self, i: int) -> int:
        return self._requests.address + i * ring.REQUEST

    def cache_experts(self, places: Places, layers: Sequence[ExpertParts], base: int, n_bytes: int) -> ExpertCache:
        """Experts of these layers go through a cache of n_bytes; `base` is the address that the file is mapped to."""
        self.experts = ExpertCache(self.origin, self.readers, places, layers, base, n_bytes)
        return self.experts

    def begin(self, n_rows: int = 1) -> None:
        """Before a step of n_rows rows: start the readers where the program begins, unless they run ahead already."""
        assert self._n_visits == self.n_chunks, "each chunk is used once in a program"
        if self.experts:
            self.experts.begin(n_rows)
        if not self._is_running:
            self._is_running = True
            for i in range(min(self.split.n_slots, self.n_chunks)):
                self.readers.post(self._request(i))

    def end(self, is_whole: bool) -> ReadFailed | None:
        """After a step; why it must not count, None if it may. A step that is not whole was left early."""
        complaint = self.origin.watch.complaint()
        if is_whole and complaint is None:
            return None
        self._is_running = False
        self.readers.drain()
        words = self._requests.view(np.int64).reshape(-1, ring.REQUEST // WORD)
        words[:, ring.STATE // WORD] = words[:, ring.DONE // WORD] = 0
        if self.experts:
            self.experts.end(is_whole, complaint is None)
        fault = self.readers.take_fault()
        if complaint is None and fault:
            return ReadFailed(f"reading the model file {self.origin.path.name} failed: {fault}")
        return complaint

    def rest(self) -> None:
        """Between two texts: what is worth keeping, not too often."""
        if self.experts:
            self.experts.save(HEAT_S)

    def cancel(self) -> None:
        """Wake a step that waits for the disk, after its cancel word was set."""
        self.readers.nudge()

    def close(self) -> None:
        """Keep the heat, end the readers, close the file; memory that a read which never returns may write to stays."""
        if self.experts:
            self.experts.save()
        if self.readers.stop():
            self.origin.close()
        else:
            _HELD.append(self)


_HELD: list[Stream] = []


def place_streamed(
    store: Store, pinned_bytes: int, ring_bytes: int, on_progress: Callable[[int, int], None]
) -> Stream:
    """Pin and pack what stays, describe the rest; on_progress(bytes done, of all). BadModelFile when reading fails."""
    origin = Origin(store.gguf.parts, store.watch)
    matrices = [m for m in store.matrices if "_exps" not in m.name]  # experts have a cache
    plan = split([Extent(m.name, m.panel_bytes, m.n // 8) for m in matrices], pinned_bytes, ring_bytes)
    try:
        keep = _pin(store, matrices, origin, plan, on_progress)
    except BaseException:
        origin.close()
        raise
    stream = Stream(origin, plan, keep)
    for matrix in matrices:
        at, size, rows = matrix.source - store.base, matrix.panel_bytes, matrix.quant.rows
        matrix.pieces = tuple(
            s if s.address
            else Span(s.first, s.n_panels, 0, rows, partial(stream.visit, at + s.first * size, s.n_panels * size))
            for s in matrix.pieces
        )  # fmt: skip
    for table in store.tables:
        table.fd, table.offset, table.ring = origin.rows_fd, table.address - store.base, stream.readers.ring
    return stream


@dataclass(frozen=True, slots=True)
class _Job:
    """Panels to read and pack: `n_panels` from `offset` in the file to `address`."""

    matrix: Matrix
    offset: int
    n_panels: int
    address: int

    @property
    def n_bytes(self) -> int:
        return self.n_panels * self.matrix.panel_bytes


def _pin(
    store: Store, matrices: list[Matrix], origin: Origin, plan: Split, on_progress: Callable[[int, int], None]
) -> list[Arena | Buffer]:
    """Leaves each matrix with its pieces; those without an address are not in memory. Returns what holds the rest."""
    cuts: dict[int, list[tuple[Cut, bool]]] = {}
    for unit, stays in zip(plan.units, plan.stays, strict=True):
        for cut in unit.cuts:
            cuts.setdefault(cut.matrix, []).append((cut, stays))
    arena = Arena(plan.pinned_bytes + (64 + GAP) * sum(plan.stays) * 2)
    keep: list[Arena | Buffer] = [arena]
    jobs: list[_Job] = []
    for i, matrix in enumerate(matrices):
        pieces, start = [], matrix.source - store.base
        for stays, group in groupby(cuts.get(i, ()), key=itemgetter(1)):
            run = [cut for cut, _ in group]
            n, size = run[-1].end - run[0].first, matrix.panel_bytes
            if not stays:
                pieces += [Span(cut.first, cut.end - cut.first, 0, matrix.quant.rows) for cut in run]
                continue
            address = arena.take(n * size)
            pieces.append(Span(run[0].first, n, address, matrix.quant.panels))
            jobs += [
                _Job(matrix, start + c.first * size, c.end - c.first, address + (c.first - run[0].first) * size)
                for c in run
            ]
        matrix.pieces = tuple(pieces)
        matrix.tail = _tail(matrix, start, origin) if matrix.n % 8 else None
    for vector in store.vectors:
        copy = _buffer(origin.read(vector.address - store.base, vector.k * 4))
        vector.address = copy.address
        keep.append(copy)
    _load(jobs, origin, plan.chunk_bytes + SLACK, on_progress)
    return keep


def _buffer(data: bytes) -> Buffer:
    buffer = Buffer(len(data))
    buffer.view(np.uint8)[:] = np.frombuffer(data, np.uint8)
    return buffer


def _tail(matrix: Matrix, start: int, origin: Origin) -> Buffer:
    """The rows behind the last whole eight, filled up with zeros."""
    row = matrix.panel_bytes // 8
    data = origin.read(start + matrix.n // 8 * matrix.panel_bytes, matrix.n % 8 * row)
    return _buffer(data.ljust(matrix.panel_bytes, b"\0"))


def _load(jobs: list[_Job], origin: Origin, bounce_bytes: int, on_progress: Callable[[int, int], None]) -> None:
    """Read and pack them, on as many threads as keep the disk busy."""
    done, total = 0, sum(job.n_bytes for job in jobs)
    _ = pack_panels.address
    on_progress(0, total)
    free: SimpleQueue[_Bounce] = SimpleQueue()
    for _i in range(N_READERS):
        free.put(_Bounce(bounce_bytes))

    def run(job: _Job) -> int:
        bounce = free.get()
        try:
            at = bounce.address + origin.read_into(bounce.memory, job.offset, job.n_bytes)
            m = job.matrix
            pack_panels(m.quant.pack.address, at, m.blocks, job.address, m.panel_bytes, job.n_panels)
        finally:
            free.put(bounce)
        return job.n_bytes

    with ThreadPoolExecutor(N_READERS) as pool:
        try:
            for n_bytes in pool.map(run, jobs):
                done += n_bytes
                on_progress(done, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


class _Bounce:
    """Memory on a page's border for one read."""

    def __init__(self, n_bytes: int) -> None:
        self._map = mmap.mmap(-1, -(-n_bytes // BLOCK) * BLOCK)
        self.memory = memoryview(self._map)
        bytes_ = np.frombuffer(self._map, np.uint8)
        self.address = int(bytes_.ctypes.data)
        live(self, self.address, len(self._map))
