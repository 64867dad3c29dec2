"""The front door: a path and options become a ready engine, or one clear error before the weights are touched.

header -> shape -> plan -> claims -> kernels compiled -> weights placed -> program recorded -> engine. Not here: what
the machine offers (the caller reads it), profiles, processes.
"""

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.cache.kv import KvCache
from engine.cache.prefix import Prefixes
from engine.census import Home, census
from engine.draft import DraftModel, check_vocabularies
from engine.embedding import RANK, Embedder, pooling_of
from engine.errors import BadModelFile, UnsupportedModel
from engine.footprint import ModelFacts, out_rows
from engine.generate import Engine
from engine.gguf.digest import model_digest
from engine.gguf.reader import GgufFile, read_gguf
from engine.info import EngineInfo
from engine.kernels import fetch, readers
from engine.kernels.embed import embed_read
from engine.kernels.isa import ISA
from engine.kernels.jit import Kernel, cache_root, compile_all
from engine.kernels.pack import pack_panels
from engine.kernels.team import KERNELS, Team
from engine.machinery import Machinery
from engine.meter import PassTimes
from engine.models.decoder import Decoder
from engine.models.parts import Parts
from engine.models.ranking import head_of
from engine.models.registry import family
from engine.models.shape import DecoderShape
from engine.planner import Machine, Plan, PlanRequest, plan
from engine.planner.beside import draft_bytes
from engine.planner.forecast import heat_of
from engine.planner.residency import least_slots
from engine.sampling import Sampling
from engine.speculate import MOST_GUESSES, LookupSpeculator, Speculator, drafts_with_model, spec_type_of
from engine.weights.heat import Heat, heat_path
from engine.weights.pinning import SLACK
from engine.weights.placement import place_mapped, place_resident
from engine.weights.store import Store
from engine.weights.stream import Stream, place_streamed

# (stage "compile" | "load" | "ready", done, total, note)
Progress = Callable[[str, int, int, str], None]


@dataclass(frozen=True)
class EngineOptions:
    """What may be asked of an engine; n_ctx 0 and cache_mb None let the planner choose. Field names are the settings'
    long flags, but for `is_served`: an API process lives beside this one and takes its part of the memory. For
    measuring, instead of what the planner chooses: `pinned_bytes` of a streamed model stay in memory, `ring_bytes` hold
    what is read ahead, `expert_bytes` hold experts. What each expert is used is kept in `heat_dir` (empty: nowhere).
    """

    n_ctx: int = 0
    threads: int = 1
    threads_batch: int = 1
    batch_size: int = 2048
    ubatch_size: int = 512
    type_k: str = "f16"
    type_v: str = "f16"
    load_mode: str = "auto"
    cache_mb: int | None = None
    n_parallel: int = 1
    spec_type: str = "auto"
    spec_ngram_simple_size_n: int = 1
    spec_ngram_simple_size_m: int = MOST_GUESSES
    is_served: bool = False
    heat_dir: str = ""
    pinned_bytes: int | None = None
    ring_bytes: int | None = None
    expert_bytes: int | None = None
    spec_draft_model: str | None = None
    spec_draft_n_max: int = MOST_GUESSES
    cache_prompt: bool = False


def _silent(stage: str, done: int, total: int, note: str) -> None:
    pass


def load_engine(
    path: str | os.PathLike[str], options: EngineOptions, machine: Machine, on_progress: Progress = _silent
) -> Engine:
    """Load a model; raises BadModelFile, UnsupportedModel or DoesNotFit before any weight is read."""
    gguf = read_gguf(path)
    shape = DecoderShape.read(gguf)
    request = PlanRequest(
        n_ctx=options.n_ctx, type_k=options.type_k, type_v=options.type_v, load_mode=options.load_mode,
        ubatch_size=options.ubatch_size, parallel=options.n_parallel, threads=options.threads,
        is_served=options.is_served, expert_cache=None if options.cache_mb is None else options.cache_mb << 20,
        heat=_heat(gguf, shape, options),
    )  # fmt: skip
    small: Engine | None = None
    if drafts_with_model(options.spec_type, options.spec_draft_model):
        draft = read_gguf(options.spec_draft_model or "")
        check_vocabularies(gguf, draft)
        beside = draft_bytes(ModelFacts.of(draft, DecoderShape.read(draft)), request, options.threads)
        request = replace(request, beside_bytes=beside)
    chosen = plan(gguf, shape, machine, request)
    if options.pinned_bytes is not None:
        chosen = replace(chosen, pinned_bytes=options.pinned_bytes)
    if request.beside_bytes:
        small = _load_small(options, chosen.n_ctx, machine, on_progress)
    store: Store | None = None
    try:
        store = Store(gguf)
        return _build(gguf, shape, chosen, options, machine, store, small, on_progress)
    except BaseException:
        if store is not None:
            store.close()
        if small is not None:
            small.shutdown()
        raise


def _heat(gguf: GgufFile, shape: DecoderShape, options: EngineOptions) -> Heat | None:
    """What earlier runs have used of each expert, None if that is not known."""
    facts = ModelFacts.of(gguf, shape)
    return heat_of(facts, Path(options.heat_dir)) if options.heat_dir else None


def _load_small(options: EngineOptions, n_ctx: int, machine: Machine, on_progress: Progress) -> Engine:
    """The draft model, whole in memory; the planning of the large one has left it room."""
    own = replace(
        options, n_ctx=n_ctx, type_k="f16", type_v="f16", load_mode="resident", spec_type="none", spec_draft_model=None,
        cache_prompt=False,
    )

    def without_ready(stage: str, done: int, total: int, note: str) -> None:
        if stage != "ready":
            on_progress(stage, done, total, note)

    return load_engine(options.spec_draft_model or "", own, machine, without_ready)


def _build(
    gguf: GgufFile, shape: DecoderShape, chosen: Plan, options: EngineOptions, machine: Machine, store: Store,
    small: Engine | None, on_progress: Progress,
) -> Engine:  # fmt: skip
    model = family(shape.architecture).Model(shape, store)
    folded = sorted({matrix.type.name for matrix in store.matrices if matrix.type.is_folded})
    if folded and chosen.load_mode != "resident":
        raise UnsupportedModel(
            f"{folded[0]} weights are unfolded while they are loaded, so they need load_mode resident and not"
            f" {chosen.load_mode}; give the model more memory or use a TQ2_0 file"
        )
    kv = KvCache(
        chosen.n_ctx, shape.n_layers, shape.n_kv_heads, shape.head_dim, options.type_k, options.type_v,
        options.n_parallel, windows=shape.windows, rows=options.ubatch_size, v_dim=shape.v_dim,
    )  # fmt: skip
    team_size = max(options.threads, options.threads_batch)
    rows = min(options.ubatch_size, chosen.n_ctx)
    kernels = _kernels(model, shape, store, kv, chosen)
    compile_all(kernels, lambda done, total, name: on_progress("compile", done, total, name or ISA.words))
    notes = list(chosen.warnings)
    if not all(kernel.path.exists() for kernel in kernels):
        notes.append(f"kernels cannot be kept in {cache_root()}, so each start compiles them anew")
    arena: Any = None
    stream: Stream | None = None

    def loading(done: int, total: int) -> None:
        on_progress("load", done, total, "weights")

    if chosen.load_mode == "resident":
        arena = place_resident(store, team_size, loading)
    elif chosen.load_mode == "stream":
        kv.populate()  # what is planned is taken now: no answer may find later that it is not there
        stream = _streamed(gguf, shape, chosen, options, store, model, loading)
    elif note := place_mapped(store, chosen.load_mode == "mlock"):
        notes.append(note)
    if stream is None and store.watch.complaint():
        raise BadModelFile(f"{gguf.path.name} changed while it was being loaded; load it again")
    parts = Parts(shape, store.matrices, kv, rows, out_rows(options.n_parallel), team_size)
    model.record(parts)
    team = Team(team_size, _cpus(machine, team_size))
    is_dense = not chosen.weights["experts"]
    spec_type = spec_type_of(options.spec_type, chosen.load_mode, is_dense, options.spec_draft_model)

    def close() -> None:
        store.close()
        if small is not None:
            small.shutdown()

    machinery = Machinery(
        team, parts.program.finish(), kv, parts.logits, parts.ld_logits, parts.max_out,
        _embedder(gguf, model, parts, store),
        keep=(parts, arena, model, small), close=close, stream=stream,
        speculate=_speculate(options, spec_type, small, shape.n_vocab),
        watch=store.watch if chosen.load_mode in ("mmap", "mlock") else None,
        prefixes=Prefixes(kv) if options.cache_prompt else None,
    )  # fmt: skip
    homes = census(store, chosen.load_mode)
    info = _info(gguf, shape, chosen, options, kv, rows, spec_type, tuple(notes), stream, homes)
    pooling = machinery.embedder.pooling
    is_headless = pooling == RANK and machinery.embedder.head is None
    info = replace(info, pooling="" if is_headless else pooling, is_encoder=shape.is_encoder)
    on_progress("ready", 1, 1, "")
    return Engine(info, machinery)


def _embedder(gguf: GgufFile, model: Decoder, parts: Parts, store: Store) -> Embedder:
    """Over the rows that a step leaves in x; nobody pools a decoder's rows of a norm that centres."""
    shape = model.shape
    pooling = pooling_of(gguf, shape.architecture)
    if shape.is_encoder:
        head = head_of(store, shape.n_embd) if pooling == RANK else None
        return Embedder(pooling, parts.x, np.ones(shape.n_embd), None, parts.max_rows, shape.n_places, head)
    norm = model.output_norm
    weight = np.array((ctypes.c_float * norm.k).from_address(norm.address), np.float64)
    return Embedder("" if model.has_layer_norm else pooling, parts.x, weight, shape.eps)


def _kernels(model: Decoder, shape: DecoderShape, store: Store, kv: KvCache, chosen: Plan) -> list[Kernel]:
    """Every kernel this load will call, found by recording the program once in the layout it will have."""
    resident, streams = chosen.load_mode == "resident", chosen.load_mode == "stream"
    before = [(m, m.body) for m in store.matrices]
    for matrix in store.matrices:
        matrix.body = matrix.quant.panels if resident else matrix.quant.rows
    rehearsal = Parts(shape, store.matrices, kv, 1, 1, 1)
    model.record(rehearsal)
    for matrix, body in before:
        matrix.body = body
    found = [*rehearsal.program.kernels, *KERNELS]
    if resident or streams:
        found += [pack_panels, *(m.quant.pack for m in store.matrices)]
        found += [m.quant.unfold for m in store.matrices if m.type.is_folded]
    if streams:
        found += [embed_read, *readers.KERNELS, *(m.quant.panels for m in store.matrices)]
        found += [fetch.fetch, fetch.bring] if shape.n_experts else []
    return found


def _streamed(
    gguf: GgufFile, shape: DecoderShape, chosen: Plan, options: EngineOptions, store: Store, model: Decoder,
    loading: Callable[[int, int], None],
) -> Stream:  # fmt: skip
    experts = ModelFacts.of(gguf, shape).experts
    slots = least_slots(experts) if experts else 0  # the plan counts them to the ring
    ring_bytes = chosen.ring_bytes - slots if options.ring_bytes is None else options.ring_bytes
    stream = place_streamed(store, chosen.pinned_bytes, ring_bytes, loading)
    if experts:
        n_bytes = chosen.expert_cache_bytes + slots if options.expert_bytes is None else options.expert_bytes
        layers = [w.parts for w in model.mixtures]
        model.cache = stream.cache_experts(model.places, layers, store.base, n_bytes)
        if options.heat_dir:
            digest = model_digest(gguf)
            model.cache.remember(heat_path(Path(options.heat_dir), digest), digest)
        try:
            model.cache.fill(loading)
        except BaseException:
            stream.close()
            raise
    return stream


def _cpus(machine: Machine, threads: int) -> tuple[int, ...]:
    """One CPU for each thread where that cannot hurt: no quota, no more threads than CPUs, no siblings in the mask."""
    alone = machine.cpu_quota is None and threads <= len(machine.cpu_mask) == machine.physical_cores
    return tuple(machine.cpu_mask[:threads]) if alone else ()


def _speculate(
    options: EngineOptions, spec_type: str, small: Engine | None, n_vocab: int
) -> Callable[[list[int], Sampling, PassTimes], Speculator] | None:
    """What makes the guesser of a text."""
    if small is not None:
        most = options.spec_draft_n_max
        return lambda ids, sampling, times: DraftModel(small, ids, sampling, most, n_vocab, times)
    if spec_type == "none":
        return None
    least, longest = options.spec_ngram_simple_size_n, options.spec_ngram_simple_size_m
    return lambda ids, sampling, times: LookupSpeculator(ids, least, longest, times)


def _info(
    gguf: GgufFile, shape: DecoderShape, chosen: Plan, options: EngineOptions, kv: KvCache, rows: int,
    spec_type: str, notes: tuple[str, ...], stream: Stream | None, homes: tuple[Home, ...],
) -> EngineInfo:  # fmt: skip
    name = gguf.metadata.get("general.name")
    n_params = sum(t.k * t.n_rows for t in gguf.tensors.values())
    split, experts = (stream.split, stream.experts) if stream else (None, None)
    return EngineInfo(
        name=name if isinstance(name, str) else gguf.path.stem, architecture=shape.architecture, n_ctx=kv.n_ctx,
        n_ctx_train=shape.n_ctx_train, n_vocab=shape.n_vocab, n_layers=shape.n_layers, n_params=n_params,
        file_bytes=gguf.n_bytes, type_k=options.type_k, type_v=options.type_v, load_mode=chosen.load_mode,
        threads=options.threads, threads_batch=options.threads_batch, batch_size=options.batch_size,
        ubatch_size=rows, n_parallel=options.n_parallel, isa=ISA.level, isa_reason=ISA.reason, cpu=ISA.cpu,
        weights_bytes=chosen.weights_bytes,
        kv_bytes=kv.n_bytes, model_digest=model_digest(gguf), spec_type=spec_type, notes=notes,
        pinned_bytes=split.pinned_bytes if split else 0, streamed_bytes=split.streamed_bytes if split else 0,
        ring_bytes=split.n_slots * (split.chunk_bytes + SLACK) if split else 0,
        expert_cache_bytes=experts.n_bytes if experts else 0,
        budget_bytes=chosen.budget_bytes, private_bytes=chosen.private_bytes,
        plan=tuple((row.name, row.value, row.reason, row.provenance) for row in chosen.rows), homes=homes,
    )  # fmt: skip
