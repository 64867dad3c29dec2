"""Decides from a file's header what a model will take on a machine, each number with its reason. Not here: reading the
machine (appliance/machine/host.py), what parts cost (footprint.py), loading anything; importing this costs no numba.

    total  = weights + KV cache + engine      resident and mlock: the weights are memory of our own or pinned
    needed =           KV cache + engine      mmap: the file's pages live in the page cache and may be dropped
"""

from bisect import bisect_right
from dataclasses import dataclass, replace

from engine.budget import MIB, Verdict, budget_of, in_words, mib, threads_for, verdict_of
from engine.budget import Machine as Machine  # whoever plans names a machine
from engine.cache.layout import KV_TYPES, PAGE, position_bytes, whole_pages
from engine.errors import DoesNotFit, UsageError
from engine.footprint import API_BYTES, WORKER_BYTES, ModelFacts, buffers_bytes, cache_bytes, engine_bytes
from engine.gguf.layout import quoted
from engine.gguf.reader import GgufFile
from engine.models.shape import DecoderShape

LOAD_MODES = ("auto", "resident", "mmap", "mlock")
DEFAULT_CTX = 8192
LEAST_CTX = 512
MAX_CTX = 1 << 30


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
    """One line of a plan; *_bytes are bytes. `provenance` is measured (read from the file or the machine), derived (a
    formula), policy (a choice of ours) or operator (asked for)."""

    name: str
    value: int | str
    reason: str
    provenance: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be allocated, in bytes; `load_mode` is resident, mmap or mlock; `n_ctx` a multiple of 256; `reason` is
    the verdict in one sentence; `max_ctx` the largest context that would fit, 0 for none."""

    rows: tuple[Row, ...]
    warnings: tuple[str, ...]
    verdict: Verdict
    reason: str
    n_ctx: int
    max_ctx: int
    load_mode: str
    threads: int
    weights: dict[str, int]
    weights_bytes: int
    kv_bytes: int
    kv_bytes_per_token: int
    buffers_bytes: int
    engine_bytes: int
    needed_bytes: int
    total_bytes: int
    budget_bytes: int
    budget_reason: str

    @property
    def fits(self) -> bool:
        return self.verdict != "NO"

    @property
    def spare_bytes(self) -> int:
        """What is left of the budget when all weights are in memory; below 0 when they cannot be."""
        return self.budget_bytes - self.total_bytes


def plan(gguf: GgufFile, shape: DecoderShape, machine: Machine, request: PlanRequest, freed_bytes: int = 0) -> Plan:
    """The plan, or DoesNotFit with the smallest change that would fit; UsageError for a request nobody can meet."""
    made = assess(ModelFacts.of(gguf, shape), machine, request, freed_bytes)
    if made.fits:
        return made
    raise DoesNotFit(
        made.reason, needed_bytes=made.needed_bytes, available_bytes=made.budget_bytes, max_ctx=made.max_ctx
    )


def assess(facts: ModelFacts, machine: Machine, request: PlanRequest, freed_bytes: int = 0) -> Plan:
    """The plan, also of what does not fit: verdict NO then. `freed_bytes` is what a worker that will be stopped first
    gives back. UsageError for a request nobody can meet."""
    _check(facts.shape, request)
    return _Planner(facts, machine, request, freed_bytes).plan()


def _check(shape: DecoderShape, request: PlanRequest) -> None:
    position_bytes(shape.head_dim, shape.head_dim, request.type_k, request.type_v)
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

    def __init__(self, facts: ModelFacts, machine: Machine, request: PlanRequest, freed_bytes: int) -> None:
        self.facts, self.shape, self.machine, self.request = facts, facts.shape, machine, request
        self.budget, self.budget_reason = budget_of(machine, freed_bytes)
        self.weights = facts.weights_bytes
        self.threads = request.threads or threads_for(machine)[0]
        self.rows: list[Row] = []
        self.warnings: list[str] = []

    def plan(self) -> Plan:
        n_ctx = self._context()
        cache, buffers = self._kv(n_ctx), self._buffers(n_ctx)
        engine = engine_bytes(buffers)
        self._weights_rows()
        self._kv_rows(n_ctx, cache)
        self._engine_rows(buffers, engine)
        mode = self._load_mode(n_ctx)
        needed, total = self._needed(mode, n_ctx), self.weights + cache + engine
        verdict = verdict_of(total, needed, self.budget, mode != "mmap")
        reason = self._verdict_reason(verdict, mode, n_ctx, total)
        self._add("needed_bytes", needed, _sum_of(mode), "derived")
        self._add("total_bytes", total, "weights, KV cache and engine", "derived")
        self._add("budget_bytes", self.budget, self.budget_reason, "measured")
        self._add("spare_bytes", self.budget - total, "budget less total", "derived")
        self._add("verdict", verdict, reason, "derived")
        self._threads_row()
        return Plan(
            rows=tuple(self.rows), warnings=tuple(self.warnings), verdict=verdict, reason=reason, n_ctx=n_ctx,
            max_ctx=self._most_context("mmap"), load_mode=mode, threads=self.threads, weights=dict(self.facts.weights),
            weights_bytes=self.weights, kv_bytes=cache, kv_bytes_per_token=self._per_token(), buffers_bytes=buffers,
            engine_bytes=engine, needed_bytes=needed, total_bytes=total, budget_bytes=self.budget,
            budget_reason=self.budget_reason,
        )  # fmt: skip

    def _add(self, name: str, value: int | str, reason: str, provenance: str) -> None:
        self.rows.append(Row(name, value, reason, provenance))

    def _kv(self, n_ctx: int, request: PlanRequest | None = None) -> int:
        r = request or self.request
        return cache_bytes(self.shape, n_ctx, r.type_k, r.type_v, r.parallel)

    def _per_token(self) -> int:
        r, s = self.request, self.shape
        return s.n_layers * s.n_kv_heads * position_bytes(s.head_dim, s.head_dim, r.type_k, r.type_v)

    def _buffers(self, n_ctx: int) -> int:
        r = self.request
        return buffers_bytes(self.shape, n_ctx, r.ubatch_size, self.threads, r.parallel)

    def _needed(self, mode: str, n_ctx: int) -> int:
        weights = 0 if mode == "mmap" else self.weights
        return weights + self._kv(n_ctx) + engine_bytes(self._buffers(n_ctx))

    def _weights_rows(self) -> None:
        for kind, n_bytes in self.facts.weights.items():
            if n_bytes:
                self._add(f"weights_{kind}_bytes", n_bytes, "sizes in the file, kinds from the names", "measured")
        self._add("weights_bytes", self.weights, f"{self.facts.n_tensors} tensors of the file", "measured")

    def _kv_rows(self, n_ctx: int, cache: int) -> None:
        r, s = self.request, self.shape
        many = f" x {r.parallel} sequences" if r.parallel > 1 else ""
        what = f"{s.n_layers} layers x {s.n_kv_heads} KV heads x {s.head_dim} values"
        types = f"K {r.type_k} and V {r.type_v}"
        self._add("kv_bytes", cache, f"{what} x {n_ctx:,} positions{many}, {types}", "derived")
        self._add("kv_bytes_per_token", self._per_token(), f"{what}, {types}", "derived")

    def _engine_rows(self, buffers: int, engine: int) -> None:
        what = f"activations of {self.request.ubatch_size} rows, rotations, logits, scratch of {self.threads} threads"
        self._add("buffers_bytes", buffers, what, "derived")
        parts = f"worker at most {mib(WORKER_BYTES)}, API process at most {mib(API_BYTES)}, without weights and cache"
        both = WORKER_BYTES + API_BYTES
        self._add("interpreter_bytes", both, parts, "measured")
        self._add("reserve_bytes", engine - both - buffers, "what the kernel wants left over", "policy")
        self._add("engine_bytes", engine, "buffers, interpreter and reserve", "derived")

    def _context(self) -> int:
        asked, trained = self.request.n_ctx, self.shape.n_ctx_train
        if asked == 0:
            return self._chosen_context(min(trained, DEFAULT_CTX))
        n_ctx = whole_pages(asked)
        rounded = "" if n_ctx == asked else f", rounded up to whole pages of {PAGE}"
        self._add("n_ctx", n_ctx, f"asked for {asked:,}{rounded}", "operator")
        if asked > trained:
            self.warnings.append(
                f"the model is trained on {trained:,} positions and {asked:,} are asked for; past the trained ones"
                " answers may turn to nonsense"
            )
        return n_ctx

    def _chosen_context(self, wish: int) -> int:
        """Without a number of the user's, less context is better than no start."""
        n_ctx = whole_pages(wish)
        reason = f"the trained length is {self.shape.n_ctx_train:,}"
        if wish < self.shape.n_ctx_train:
            reason += f"; without ctx_size at most {DEFAULT_CTX:,} are taken"
        mode = "mmap" if self.request.load_mode == "auto" else self.request.load_mode
        if self._needed(mode, n_ctx) > self.budget:
            most = self._most_context(mode)
            if most >= min(LEAST_CTX, n_ctx):
                n_ctx, reason = most, f"{reason}; more would not fit the memory"
        self._add("n_ctx", n_ctx, reason, "policy")
        return n_ctx

    def _most_context(self, mode: str) -> int:
        """The largest whole number of pages that fits, 0 for none."""
        pages = range(1, MAX_CTX // PAGE + 1)
        return bisect_right(pages, self.budget, key=lambda n: self._needed(mode, n * PAGE)) * PAGE

    def _load_mode(self, n_ctx: int) -> str:
        asked = self.request.load_mode
        if asked != "auto":
            mode, reason, source = asked, "asked for", "operator"
        elif self._needed("resident", n_ctx) <= self.budget:
            mode, reason, source = "resident", "weights, KV cache and engine fit: the fastest layout", "policy"
        else:
            mode, reason, source = "mmap", "a copy of the weights would not fit, the file's own pages may go", "policy"
        self._add("load_mode", mode, reason, source)
        return mode

    def _verdict_reason(self, verdict: Verdict, mode: str, n_ctx: int, total: int) -> str:
        spare = self.budget - total
        if verdict == "NO":
            needed = f"{quoted(self.facts.name, 120)} with {n_ctx:,} positions needs {mib(self._needed(mode, n_ctx))}"
            available = f"{self.budget // MIB:,} MiB are available"
            return f"{needed} ({_sum_of(mode)}), but {available}; {self._smallest_change(mode, n_ctx)}"
        if verdict == "PAGES":
            reason = (
                f"the weights of {mib(self.weights)} do not fit the {mib(spare + self.weights)} left for their pages:"
                " each token will read from disk, slowly; a smaller file or more memory helps"
            )
            self.warnings.append(reason)
            return reason
        tight = ", under a tenth of the budget" if verdict == "TIGHT" else ""
        return f"all of it stays in memory, {in_words(spare)} of {in_words(self.budget)} are left{tight}"

    def _smallest_change(self, mode: str, n_ctx: int) -> str:
        if mode != "mmap" and self._needed("mmap", n_ctx) <= self.budget:
            return "--load-mode mmap would fit"
        mapped = "" if mode == "mmap" else " with --load-mode mmap"
        changes = []
        if most := self._most_context("mmap"):
            changes.append(f"--ctx-size {min(most, n_ctx)}{mapped}")
        if self._would_fit(n_ctx, replace(self.request, type_k="q8_0", type_v="q8_0")):
            changes.append(f"--cache-type-k q8_0 --cache-type-v q8_0{mapped}")
        if 0 < (fewer := self._most_parallel(n_ctx)) < self.request.parallel:
            changes.append(f"--parallel {fewer}{mapped}")
        if changes:
            return " or ".join(changes) + " would fit"
        return f"even --ctx-size {PAGE}{mapped} needs {mib(self._needed('mmap', PAGE))}"

    def _most_parallel(self, n_ctx: int) -> int:
        room = self.budget - engine_bytes(self._buffers(n_ctx))
        return max(0, room) // self._kv(n_ctx, replace(self.request, parallel=1))

    def _would_fit(self, n_ctx: int, request: PlanRequest) -> bool:
        """Whether that cache is smaller and fits beside the mapped file."""
        if self.shape.head_dim % max(KV_TYPES[request.type_k][1], KV_TYPES[request.type_v][1]):
            return False
        small = self._kv(n_ctx, request)
        return small < self._kv(n_ctx) and small + engine_bytes(self._buffers(n_ctx)) <= self.budget

    def _threads_row(self) -> None:
        best, reason = threads_for(self.machine)
        asked = self.request.threads
        if asked is None:
            self._add("threads", best, reason, "measured")
            return
        self._add("threads", asked, "asked for", "operator")
        if asked > best:
            self.warnings.append(f"{asked} threads are more than {best} ({reason}); they will wait for each other")


def _sum_of(mode: str) -> str:
    return "KV cache and engine; the file's pages come on top" if mode == "mmap" else "weights, KV cache and engine"
