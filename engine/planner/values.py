"""What a planning starts from and what it ends in. Not here: deciding anything (planning.py)."""

from dataclasses import dataclass
from typing import Literal

from engine.budget import Verdict
from engine.weights.heat import Heat

LOAD_MODES = ("auto", "resident", "mmap", "mlock", "stream")
MAX_CTX = 1 << 30
MAX_THREADS = 255  # of one team


# Of what a token needs there stays in memory: resident, all of it; streams, a third or more; hopeless, less than that.
# no: it cannot be loaded.
Fit = Literal["resident", "streams", "hopeless", "no"]


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What was asked for; `n_ctx` 0, `threads` None and `expert_cache` None (bytes) leave the choice to the planner.
    `is_served`: an API process lives beside the worker. `beside_bytes`: what a draft model takes in the worker.
    `heat`: what earlier runs have used of each expert, None where they are all taken to be alike."""

    n_ctx: int = 0
    type_k: str = "f16"
    type_v: str = "f16"
    load_mode: str = "auto"
    ubatch_size: int = 512
    parallel: int = 1
    threads: int | None = None
    expert_cache: int | None = None
    is_served: bool = True
    beside_bytes: int = 0
    heat: Heat | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a plan; *_bytes are bytes. `provenance` is measured (read from the file or the machine), derived (a
    formula), policy (a choice of ours) or operator (asked for)."""

    name: str
    value: int | float | str
    reason: str
    provenance: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be allocated, in bytes; `load_mode` is resident, mmap, mlock or stream; `n_ctx` a multiple of 256;
    `reason` is the verdict in one sentence; `max_ctx` the largest context that would fit, 0 for none.

    Of a stream: `pinned_bytes` of the matrices that every token multiplies with stay in memory of our own, the rest of
    them, `stream_bytes_per_token`, goes through `ring_bytes` of buffers; `expert_cache_bytes` hold routed experts. All
    four are 0 in the other modes.

    `private_bytes` is the peak of the worker's own and locked memory with a full context; `tok_s` the forecast of
    tokens per second of all sequences together at the start of a context, `bound` what limits it (disk, memory or
    compute); `ram_bytes_per_token` and `disk_bytes_per_token` what a step reads of the weights.
    """

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
    pinned_bytes: int = 0
    ring_bytes: int = 0
    expert_cache_bytes: int = 0
    stream_bytes_per_token: int = 0
    cycle_floor_bytes: int = 0
    private_bytes: int = 0
    fit: Fit = "no"
    tok_s: float = 0.0
    bound: str = ""
    ram_bytes_per_token: int = 0
    disk_bytes_per_token: int = 0

    @property
    def fits(self) -> bool:
        return self.verdict != "NO"

    @property
    def spare_bytes(self) -> int:
        """What is left of the budget when all weights are in memory; below 0 when they cannot be."""
        return self.budget_bytes - self.total_bytes
