"""What a loaded engine says about itself. Not here: how it was decided (planner.py), doing anything."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Facts of a loaded engine; sizes in bytes, `n_ctx` in positions, `isa` with its reason,
    `spec_type` how next tokens are guessed.

    Of a stream: `pinned_bytes` stay in memory, `streamed_bytes` are read for each step through `ring_bytes`;
    `expert_cache_bytes` hold routed experts. What was planned: `budget_bytes` there were, `private_bytes` are the
    worker's own and locked memory at most, `plan` is every row of it: name, value, reason, provenance; `homes` says of
    each tensor where it lives (census.Home); `pooling` how texts become vectors (embedding.py), empty: not at all;
    `is_encoder`: it makes nothing else."""

    name: str
    architecture: str
    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    n_layers: int
    n_params: int
    file_bytes: int
    type_k: str
    type_v: str
    load_mode: str
    threads: int
    threads_batch: int
    batch_size: int
    ubatch_size: int
    n_parallel: int
    isa: str
    isa_reason: str
    cpu: str
    weights_bytes: int
    kv_bytes: int
    model_digest: str
    spec_type: str = "none"
    pinned_bytes: int = 0
    streamed_bytes: int = 0
    ring_bytes: int = 0
    expert_cache_bytes: int = 0
    budget_bytes: int = 0
    private_bytes: int = 0
    plan: tuple[tuple[str, int | float | str, str, str], ...] = ()
    homes: tuple[tuple[str, str, int, int, int, str, int], ...] = ()
    notes: tuple[str, ...] = ()
    pooling: str = ""
    is_encoder: bool = False
