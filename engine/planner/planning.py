"""Takes the decisions of a plan one after the other, each number with its reason. Not here: reading the machine
(appliance/machine/host.py), what parts cost (footprint.py), loading anything; importing this costs no numba.
"""

from engine.budget import Machine, budget_of, in_words, mib, threads_for
from engine.cache.layout import position_bytes
from engine.errors import DoesNotFit, UsageError
from engine.footprint import API_BYTES, WORKER_BYTES, ModelFacts, worker_bytes
from engine.gguf.layout import quoted
from engine.gguf.reader import GgufFile
from engine.models.shape import DecoderShape
from engine.planner.choice import Choice, Choices, T
from engine.planner.forecast import Forecast, forecast
from engine.planner.needs import Needs
from engine.planner.residency import Residency, residency
from engine.planner.values import LOAD_MODES, MAX_CTX, MAX_THREADS, Plan, PlanRequest, Row
from engine.planner.verdict import Judged


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
    position_bytes(shape.head_dim, shape.v_dim, request.type_k, request.type_v)
    if request.load_mode not in LOAD_MODES:
        raise UsageError(
            f"load_mode is {quoted(request.load_mode)}; {', '.join(LOAD_MODES)} are possible", param="load_mode"
        )
    threads = 1 if request.threads is None else request.threads
    bounds = {
        "ctx_size": (request.n_ctx, 0, MAX_CTX), "ubatch_size": (request.ubatch_size, 1, MAX_CTX),
        "parallel": (request.parallel, 1, MAX_CTX), "threads": (threads, 1, MAX_THREADS),
    }  # fmt: skip
    for name, (value, low, high) in bounds.items():
        if not low <= value <= high:
            raise UsageError(f"{name} is {value}; {low} to {high} is possible", param=name)


class _Planner:
    """One planning: the inputs, and rows that grow while each decision is taken."""

    def __init__(self, facts: ModelFacts, machine: Machine, request: PlanRequest, freed_bytes: int) -> None:
        self.facts, self.shape, self.machine, self.request = facts, facts.shape, machine, request
        self.budget, self.budget_reason = budget_of(machine, freed_bytes)
        if request.beside_bytes:
            self.budget = max(0, self.budget - request.beside_bytes)
            self.budget_reason += f", less {in_words(request.beside_bytes)} for the draft model"
        self.weights = facts.weights_bytes
        self.threads = request.threads or threads_for(machine)[0]
        self.needs = Needs(facts, request, self.threads)
        self.rows: list[Row] = []
        self.warnings: list[str] = []

    def plan(self) -> Plan:
        needs, choices = self.needs, Choices(self.needs, self.budget)
        n_ctx = self._chosen("n_ctx", choices.context())
        if self.request.n_ctx > self.shape.n_ctx_train:
            trained = f"the model is trained on {self.shape.n_ctx_train:,} positions"
            asked = f"{self.request.n_ctx:,} are asked for; past the trained ones answers may turn to nonsense"
            self.warnings.append(f"{trained} and {asked}")
        self._weights_rows()
        self._kv_rows(n_ctx)
        if self.request.beside_bytes:
            what = "the draft model's weights, cache and buffers"
            self._add("draft_bytes", self.request.beside_bytes, what, "derived")
        mode, last_mode = self._chosen("load_mode", choices.load_mode(n_ctx)), choices.last_mode(n_ctx)
        engine = self._engine_rows(mode, n_ctx)
        where = self._residency(mode, n_ctx)
        judged = Judged(needs, mode, n_ctx, self.budget, where)
        least, total, verdict = judged.least, judged.total, judged.verdict
        speed = self._speed(mode, n_ctx, where, verdict == "PAGES")
        reason = judged.reason(speed, self.machine.disk_rate.provenance == "measured", last_mode)
        if verdict == "PAGES" and (mode == "mmap" or judged.fit == "hopeless"):
            self.warnings.append(reason)
        self._add("needed_bytes", least, needs.sum_of(mode), "derived")
        self._add("total_bytes", total, "weights, KV cache and engine", "derived")
        self._add("budget_bytes", self.budget, self.budget_reason, "measured")
        self._add("spare_bytes", self.budget - total, "budget less total", "derived")
        self._add("verdict", verdict, reason, "derived")
        self._threads_row()
        return Plan(
            rows=tuple(self.rows), warnings=tuple(self.warnings), verdict=verdict, reason=reason, n_ctx=n_ctx,
            max_ctx=choices.most_context(last_mode), load_mode=mode, threads=self.threads,
            weights=dict(self.facts.weights), weights_bytes=self.weights, kv_bytes=needs.kv(n_ctx),
            kv_bytes_per_token=needs.kv_per_token(), buffers_bytes=needs.buffers(n_ctx), engine_bytes=engine,
            needed_bytes=least, total_bytes=total, budget_bytes=self.budget, budget_reason=self.budget_reason,
            pinned_bytes=where.pinned, ring_bytes=where.ring, expert_cache_bytes=where.expert_cache,
            stream_bytes_per_token=where.stream_per_token,
            cycle_floor_bytes=self.facts.experts.cycle_bytes if self.facts.experts else 0,
            private_bytes=needs.private(mode, n_ctx, where), fit=judged.fit, tok_s=speed.tok_s, bound=speed.bound,
            ram_bytes_per_token=speed.ram_bytes, disk_bytes_per_token=speed.disk_bytes,
        )  # fmt: skip

    def _add(self, name: str, value: int | float | str, reason: str, provenance: str) -> None:
        self.rows.append(Row(name, value, reason, provenance))

    def _chosen(self, name: str, choice: Choice[T]) -> T:
        self._add(name, choice.value, choice.reason, choice.provenance)
        return choice.value

    def _weights_rows(self) -> None:
        for kind, n_bytes in self.facts.weights.items():
            if n_bytes:
                self._add(f"weights_{kind}_bytes", n_bytes, "sizes in the file, kinds from the names", "measured")
        self._add("weights_bytes", self.weights, f"{self.facts.n_tensors} tensors of the file", "measured")

    def _kv_rows(self, n_ctx: int) -> None:
        r, s = self.request, self.shape
        many = f" x {r.parallel} sequences" if r.parallel > 1 else ""
        values = f"{s.head_dim}" if s.v_dim == s.head_dim else f"({s.head_dim} + {s.v_dim})"
        what, types = f"{s.n_kv_heads} KV heads x {values} values", f"K {r.type_k} and V {r.type_v}"
        whole = f"{s.n_layers} layers x {what} x {n_ctx:,} positions{many}, {types}"
        if near := sum(map(bool, s.windows)):
            whole += f"; {near} of the layers keep a window of {max(s.windows):,} and what a step adds"
        self._add("kv_bytes", self.needs.kv(n_ctx), whole, "derived")
        n_far = self.needs.growing_layers
        layers = f"{n_far} layer{'s' * (n_far > 1)}" + (" without a window" if s.windows and n_far < s.n_layers else "")
        self._add("kv_bytes_per_token", self.needs.kv_per_token(), f"{layers} x {what}, {types}", "derived")

    def _engine_rows(self, mode: str, n_ctx: int) -> int:
        buffers, engine = self.needs.buffers(n_ctx), self.needs.engine(mode, n_ctx)
        what = f"activations of {self.request.ubatch_size} rows, rotations, logits, scratch of {self.threads} threads"
        self._add("buffers_bytes", buffers, what, "derived")
        worker = worker_bytes(self.shape.n_vocab) if mode == "stream" else WORKER_BYTES
        api = API_BYTES if self.request.is_served or mode != "stream" else 0
        beside = f", API process at most {mib(api)}" if api else ""
        parts = f"worker at most {mib(worker)}{beside}, without weights and cache"
        self._add("interpreter_bytes", worker + api, parts, "measured")
        self._add("reserve_bytes", engine - worker - api - buffers, "what the kernel wants left over", "policy")
        self._add("engine_bytes", engine, "buffers, interpreter and reserve", "derived")
        return engine

    def _residency(self, mode: str, n_ctx: int) -> Residency:
        """Where the weights of a stream are; of other modes there is nothing to say."""
        if self.request.expert_cache is not None and (mode != "stream" or self.facts.experts is None):
            why = f"the load mode is {mode}" if self.facts.experts else "the model has no experts"
            self.warnings.append(f"cache_mb is given and not used, since {why}; leave it out")
        if mode != "stream":
            return Residency(0, 0, 0, 0)
        room = self.budget - self.needs.kv(n_ctx) - self.needs.engine(mode, n_ctx) - self.facts.weights["norms"]
        found = residency(self.facts, room, self.request.expert_cache)
        self._add("pinned_bytes", found.pinned, "kept in memory of our own, an even share of each layer", "policy")
        self._add("ring_bytes", found.ring, "read ahead through it, over all layers", "policy")
        if experts := self.facts.experts:
            what = f"one token uses {experts.n_used} of {experts.n} experts in {experts.n_layers} layers"
            floor = f"{what}; used alike, a cache of less never hits"
            self._add("cycle_floor_bytes", experts.cycle_bytes, floor, "derived")
            source = "policy" if self.request.expert_cache is None else "operator"
            why = "what is left of the budget"
            why += ", less than one token uses" if found.expert_cache < experts.cycle_bytes else ""
            self._add("expert_cache_bytes", found.expert_cache, "asked for" if source == "operator" else why, source)
            if 0 < found.expert_cache < experts.cycle_bytes:
                self.warnings.append(
                    f"an expert cache of {in_words(found.expert_cache)} can never hit where experts are used alike,"
                    f" since one token uses {in_words(experts.cycle_bytes)}; give it that, else it keeps only those"
                    " that are used far more than others"
                )
        what = f"of {in_words(self.facts.dense_bytes)} that every token multiplies with, what is not pinned"
        self._add("stream_bytes_per_token", found.stream_per_token, what, "derived")
        return found

    def _speed(self, mode: str, n_ctx: int, where: Residency, is_paging: bool) -> Forecast:
        """Rows of what a token reads and how long that takes."""
        n, memory, disk = self.request.parallel, self.machine.memory_rate, self.machine.disk_rate
        given, heat = (self.facts, self.machine, self.threads, n, mode, where, is_paging), self.request.heat
        speed, full = forecast(*given, heat=heat), forecast(*given, n_ctx, self.needs.kv(n_ctx) // n, heat)
        each = "each token" if n == 1 else f"each step of {n} sequences"
        private = self.needs.private(mode, n_ctx, where)
        self._add("private_bytes", private, "the worker's own and locked memory at most, the context full", "derived")
        self._add("ram_bytes_per_token", speed.ram_bytes, f"weights that {each} multiplies with", "derived")
        use = "as earlier runs have used them" if heat else "taken to be used alike"
        alike = f"; experts {use}" if self.facts.experts and mode == "stream" else ""
        self._add("disk_bytes_per_token", speed.disk_bytes, f"weights read anew for {each}{alike}", "derived")
        self._add("memory_bytes_per_s", round(memory.bytes_s), memory.reason, memory.provenance)
        if speed.disk_bytes:
            self._add("disk_bytes_per_s", round(disk.bytes_s), disk.reason, disk.provenance)
            if self.machine.disk_kind in ("rotating", "network"):
                kind = self.machine.disk_kind
                self.warnings.append(f"the model lies on a {kind} disk and each token reads from it; copy it to an SSD")
        limit = {"disk": "the disk", "memory": "reading memory", "compute": "computing"}
        self._add("tok_s", round(speed.tok_s, 2), f"at the start of a context; {limit[speed.bound]} binds", "derived")
        self._add("tok_s_full", round(full.tok_s, 2), f"the context full; {limit[full.bound]} binds", "derived")
        return speed

    def _threads_row(self) -> None:
        best, reason = threads_for(self.machine)
        asked = self.request.threads
        if asked is None:
            self._add("threads", best, reason, "measured")
            return
        self._add("threads", asked, "asked for", "operator")
        if asked > best:
            self.warnings.append(f"{asked} threads are more than {best} ({reason}); they will wait for each other")
