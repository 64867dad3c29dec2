"""Decides from a file's header what a model will take on a machine, each number with its reason. Not here: reading the
machine (appliance/host.py), loading anything; importing this costs no numba.

    needed = weights + KV cache + reserve        resident and mlock: the weights are memory of our own or pinned
    needed =           KV cache + reserve        mmap: the file's pages live in the page cache and may be dropped
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.errors import DoesNotFit, UsageError
from engine.gguf.layout import padded, quoted
from engine.gguf.reader import GgufFile
from engine.models.shape import DecoderShape
from engine.quants.registry import TYPES

MIB = 1 << 20
PAGE_POSITIONS = 256  # a KV page is one attention tile: at most 5% against contiguous, 64 costs 15 to 20%
KV_TYPES = ("f16", "q8_0")
LOAD_MODES = ("auto", "resident", "mmap", "mlock")
DEFAULT_CTX = 8192
LEAST_CTX = 512
MAX_CTX = 1 << 30
# Worker and API process (at most 250 and 150 MiB, tested) plus what the kernel wants left over.
RESERVE_BYTES = 512 * MIB
PROCESS_BYTES = 400 * MIB


@dataclass(frozen=True, slots=True)
class Machine:
    """What this process may use. Bytes; `memory_available` already respects the cgroups, `memory_limit` is their
    least limit; `cpu_mask` lists the allowed CPUs; `thp` is never, madvise, always or unknown."""

    memory_available: int
    memory_limit: int | None
    physical_cores: int
    cpu_mask: tuple[int, ...]
    cpu_quota: float | None
    page_size: int = 4096
    thp: str = "unknown"
    swap: int = 0


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What was asked for; `n_ctx` 0 and `threads` None leave the choice to the planner."""

    n_ctx: int = 0
    type_k: str = "f16"
    type_v: str = "f16"
    load_mode: str = "auto"
    ubatch_size: int = 512
    parallel: int = 1
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a plan; `provenance` is file, machine, request, default, formula or warning. *_bytes are bytes."""

    name: str
    value: int | str
    reason: str
    provenance: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be allocated, in bytes; `load_mode` is resident, mmap or mlock; `n_ctx` a multiple of 256."""

    rows: tuple[Row, ...]
    n_ctx: int
    kv_bytes: int
    weights_bytes: int
    buffers_bytes: int
    load_mode: str
    fits: bool
    threads: int
    needed_bytes: int

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(row.reason for row in self.rows if row.provenance == "warning")


def kv_bytes(n_kv_heads: Sequence[int], k_dim: int, v_dim: int, n_ctx: int, type_k: str, type_v: str) -> int:
    """Bytes of the KV cache for `n_ctx` positions (rounded up to pages): one number of heads per layer, 0 for none."""
    k, v = TYPES[type_k.upper()], TYPES[type_v.upper()]
    return sum(n_kv_heads) * (k.row_bytes(k_dim) + v.row_bytes(v_dim)) * padded(n_ctx, PAGE_POSITIONS)


def buffers_bytes(shape: DecoderShape, n_ctx: int, ubatch_size: int, threads: int) -> int:
    """At least the bytes of all work buffers: `ubatch_size` rows of activations, attention's partial sums, rotations
    for `n_ctx` positions, 16 rows of logits, each thread's scratch. A test compares this with what is allocated."""
    n_q, n_kv = shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
    rows = min(ubatch_size, padded(n_ctx, PAGE_POSITIONS))
    # Activations are kept as float32 and as blocks of 40 bytes per 32 values, for whichever type reads them.
    acts = 4 * (shape.n_embd + n_q + 2 * n_kv) + 6 * (shape.n_embd + n_q + shape.n_ff)
    tiles = padded(n_ctx, PAGE_POSITIONS) // PAGE_POSITIONS
    partials = max(rows, 2 * tiles) * shape.n_heads * (64 + 4 * shape.head_dim)
    scratch = 512 * rows + 64 * max(shape.n_embd, n_q, shape.n_ff) + 16 * shape.n_vocab + 64 * 1024
    return rows * acts + partials + 4 * shape.rope_dim * n_ctx + 64 * shape.n_vocab + threads * scratch


def plan(gguf: GgufFile, shape: DecoderShape, machine: Machine, request: PlanRequest) -> Plan:
    """The plan, or DoesNotFit with the smallest change that would fit; UsageError for a request nobody can meet."""
    _check(shape, request)
    return _Planner(gguf, shape, machine, request).plan()


def threads_for(machine: Machine) -> tuple[int, str]:
    """Threads that compute, and why: physical cores of the mask, within the CPU quota, at least 1."""
    n, reason = machine.physical_cores, f"physical cores among the {len(machine.cpu_mask)} CPUs this process may use"
    if machine.cpu_quota is not None and machine.cpu_quota < n:
        n, reason = math.floor(machine.cpu_quota), f"the cgroup's CPU quota is {machine.cpu_quota:g}"
    return max(1, n), reason


def _check(shape: DecoderShape, request: PlanRequest) -> None:
    for name, kind in (("cache_type_k", request.type_k), ("cache_type_v", request.type_v)):
        if kind not in KV_TYPES:
            raise UsageError(f"{name} is {quoted(kind)}; {' or '.join(KV_TYPES)} is expected", param=name)
        if shape.head_dim % TYPES[kind.upper()].items:
            raise UsageError(
                f"{name} {kind} needs heads of a multiple of 32 values, this model has {shape.head_dim}; use f16",
                param=name,
            )
    if request.load_mode not in LOAD_MODES:
        raise UsageError(
            f"load_mode is {quoted(request.load_mode)}; {', '.join(LOAD_MODES)} are possible", param="load_mode"
        )
    least = {"ctx_size": (request.n_ctx, 0), "ubatch_size": (request.ubatch_size, 1), "parallel": (request.parallel, 1)}
    if request.threads is not None:
        least["threads"] = (request.threads, 1)
    for name, (value, low) in least.items():
        if not low <= value <= MAX_CTX:
            raise UsageError(f"{name} is {value}; {low} to {MAX_CTX} is possible", param=name)


class _Planner:
    """One planning: the inputs, and rows that grow while each decision is taken."""

    def __init__(self, gguf: GgufFile, shape: DecoderShape, machine: Machine, request: PlanRequest) -> None:
        self.gguf, self.shape, self.machine, self.request = gguf, shape, machine, request
        limit = machine.memory_limit
        self.budget = machine.memory_available if limit is None else min(limit, machine.memory_available)
        self.weights = sum(t.n_bytes for t in gguf.tensors.values())
        self.threads = request.threads or threads_for(machine)[0]
        self.rows: list[Row] = []

    def plan(self) -> Plan:
        n_ctx = self._context()
        cache, buffers, reserve = self._kv(n_ctx), self._buffers(n_ctx), self._reserve(n_ctx)
        self._add("weights_bytes", self.weights, f"{len(self.gguf.tensors)} tensors of the file", "file")
        self._add("kv_bytes", cache, self._kv_reason(n_ctx), "formula")
        what = f"activations of {self.request.ubatch_size} rows, rotations, logits, scratch of {self.threads} threads"
        self._add("buffers_bytes", buffers, what, "formula")
        parts = "512 MiB" if reserve == RESERVE_BYTES else "400 MiB and the buffers"
        self._add("reserve_bytes", reserve, f"{parts}: both processes, buffers included", "formula")
        mode = self._load_mode(n_ctx)
        needed = self._needed(mode, n_ctx)
        self._add("needed_bytes", needed, _sum_of(mode), "formula")
        self._add("budget_bytes", self.budget, self._budget_reason(), "machine")
        threads = self._threads()
        return Plan(
            rows=tuple(self.rows),
            n_ctx=n_ctx,
            kv_bytes=cache,
            weights_bytes=self.weights,
            buffers_bytes=buffers,
            load_mode=mode,
            fits=True,
            threads=threads,
            needed_bytes=needed,
        )

    def _add(self, name: str, value: int | str, reason: str, provenance: str) -> None:
        self.rows.append(Row(name, value, reason, provenance))

    def _warn(self, name: str, reason: str) -> None:
        self._add(name, "warning", reason, "warning")

    def _kv(self, n_ctx: int, request: PlanRequest | None = None) -> int:
        r, shape = request or self.request, self.shape
        heads = [shape.n_kv_heads] * shape.n_layers
        return r.parallel * kv_bytes(heads, shape.head_dim, shape.head_dim, n_ctx, r.type_k, r.type_v)

    def _buffers(self, n_ctx: int) -> int:
        return buffers_bytes(self.shape, n_ctx, self.request.ubatch_size, self.threads)

    def _reserve(self, n_ctx: int) -> int:
        return max(RESERVE_BYTES, PROCESS_BYTES + self._buffers(n_ctx))

    def _needed(self, mode: str, n_ctx: int) -> int:
        weights = 0 if mode == "mmap" else self.gguf.n_bytes
        return weights + self._kv(n_ctx) + self._reserve(n_ctx)

    def _context(self) -> int:
        asked, trained = self.request.n_ctx, self.shape.n_ctx_train
        if asked == 0:
            return self._chosen_context(min(trained, DEFAULT_CTX))
        n_ctx = padded(asked, PAGE_POSITIONS)
        rounded = "" if n_ctx == asked else f", rounded up to whole pages of {PAGE_POSITIONS}"
        self._add("n_ctx", n_ctx, f"asked for {asked:,}{rounded}", "request")
        if asked > trained:
            self._warn("n_ctx", f"trained on {trained:,} positions; past them answers may turn to nonsense")
        return n_ctx

    def _chosen_context(self, wish: int) -> int:
        """Without a number of the user's, less context is better than no start."""
        n_ctx = padded(wish, PAGE_POSITIONS)
        reason = f"the trained length is {self.shape.n_ctx_train:,}"
        if wish < self.shape.n_ctx_train:
            reason += f"; without ctx_size at most {DEFAULT_CTX:,} are taken"
        mode = "mmap" if self.request.load_mode == "auto" else self.request.load_mode
        if self._needed(mode, n_ctx) > self.budget:
            most = self._most_context(mode)
            if most >= min(LEAST_CTX, n_ctx):
                n_ctx, reason = most, f"{reason}; more would not fit the memory"
        self._add("n_ctx", n_ctx, reason, "default")
        return n_ctx

    def _most_context(self, mode: str) -> int:
        """The largest whole number of pages that fits, 0 for none."""
        pages = range(1, MAX_CTX // PAGE_POSITIONS + 1)
        return bisect_right(pages, self.budget, key=lambda n: self._needed(mode, n * PAGE_POSITIONS)) * PAGE_POSITIONS

    def _kv_reason(self, n_ctx: int) -> str:
        r, s = self.request, self.shape
        many = f" x {r.parallel} sequences" if r.parallel > 1 else ""
        return f"{s.n_layers} layers x {s.n_kv_heads} KV heads x {s.head_dim} values x {n_ctx:,} positions{many}, " + (
            f"K {r.type_k} and V {r.type_v}"
        )

    def _load_mode(self, n_ctx: int) -> str:
        asked = self.request.load_mode
        if asked != "auto":
            if self._needed(asked, n_ctx) > self.budget:
                raise self._does_not_fit(asked, n_ctx)
            mode, reason, source = asked, "asked for", "request"
        elif self._needed("resident", n_ctx) <= self.budget:
            mode, reason, source = "resident", "file, KV cache and reserve fit: the fastest layout", "formula"
        elif self._needed("mmap", n_ctx) <= self.budget:
            mode, reason, source = "mmap", "a copy of the weights would not fit, the KV cache and reserve do", "formula"
        else:
            raise self._does_not_fit("mmap", n_ctx)
        self._add("load_mode", mode, reason, source)
        room = self.budget - self._needed(mode, n_ctx)
        if mode == "mmap" and room < self.gguf.n_bytes:
            self._warn(
                "load_mode",
                f"the file of {mib(self.gguf.n_bytes)} does not fit the {mib(room)} left for its pages:"
                " each token will read from disk, slowly; a smaller file or more memory helps",
            )
        return mode

    def _does_not_fit(self, mode: str, n_ctx: int) -> DoesNotFit:
        needed = self._needed(mode, n_ctx)
        return DoesNotFit(
            f"{quoted(self.gguf.path.name, 120)} with {n_ctx:,} positions needs {mib(needed)} ({_sum_of(mode)}), but"
            f" {mib(self.budget)} are available; {self._smallest_change(mode, n_ctx)}",
            needed_bytes=needed,
            available_bytes=self.budget,
            max_ctx=self._most_context("mmap"),
        )

    def _smallest_change(self, mode: str, n_ctx: int) -> str:
        if mode != "mmap" and self._needed("mmap", n_ctx) <= self.budget:
            return "--load-mode mmap would fit"
        changes = []
        most = self._most_context("mmap")
        mapped = "" if mode == "mmap" else " with --load-mode mmap"
        if most:
            changes.append(f"--ctx-size {min(most, n_ctx)}{mapped} would fit")
        if self._kv_fits_in_q8_0(n_ctx):
            changes.append(f"--cache-type-k q8_0 --cache-type-v q8_0{mapped} would fit")
        least = self._needed("mmap", PAGE_POSITIONS)
        return " or ".join(changes) or f"even --ctx-size {PAGE_POSITIONS}{mapped} needs {mib(least)}"

    def _kv_fits_in_q8_0(self, n_ctx: int) -> bool:
        if self.shape.head_dim % TYPES["Q8_0"].items:
            return False
        small = self._kv(n_ctx, replace(self.request, type_k="q8_0", type_v="q8_0"))
        return small < self._kv(n_ctx) and small + self._reserve(n_ctx) <= self.budget

    def _budget_reason(self) -> str:
        limit = self.machine.memory_limit
        return "memory available now" + (f", under a limit of {mib(limit)}" if limit is not None else "")

    def _threads(self) -> int:
        best, reason = threads_for(self.machine)
        asked = self.request.threads
        if asked is None:
            self._add("threads", best, reason, "machine")
            return best
        self._add("threads", asked, "asked for", "request")
        if asked > best:
            self._warn("threads", f"{asked} threads are more than {best} ({reason}); they will wait for each other")
        return asked


def _sum_of(mode: str) -> str:
    return "KV cache and reserve; the file's pages come on top" if mode == "mmap" else "file, KV cache and reserve"


def mib(n_bytes: int) -> str:
    """Bytes for people: "1,234 MiB"."""
    return f"{-(-n_bytes // MIB):,} MiB"
