"""What a loaded engine says about itself. Not here: how it was decided (planner.py), doing anything."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Facts of a loaded engine; sizes in bytes, `n_ctx` in positions, `isa` with its reason,
    `spec_type` how next tokens are guessed."""

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
    notes: tuple[str, ...] = ()
