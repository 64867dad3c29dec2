"""What a set of settings comes to before anything runs: the file, its plan, its vocabulary, the worker's orders. Not
here: running them (supervisor.py), choosing between profiles (swapper.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from appliance import logs
from appliance.chat_template import choose
from appliance.life import WorkerSpec
from appliance.machine.numa import bound_to, prefix
from appliance.machine.rates import with_rates
from appliance.metrics import process_memory
from appliance.profiles import Profile
from appliance.settings import Resolved, Settings
from appliance.swaps.model_facts import identity
from appliance.swaps.planning import with_draft
from appliance.templates import check
from engine.errors import ModelNotFound, TemplateError
from engine.gguf.reader import read_gguf
from engine.gguf.split import model_name
from engine.models.registry import architecture
from engine.models.shape import DecoderShape
from engine.planner import Machine, PlanRequest, plan
from engine.text import Text, open_text

Resolve = Callable[[Mapping[str, Any] | None], Resolved]
"""A profile's values (with its name) laid between the defaults and this process's environment and flags."""
log = logs.get_logger("colibri.serve")


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model behind this server: `id` for clients, further `aliases`, `meta` as /v1/models shows it."""

    id: str
    created: int
    meta: dict[str, Any]
    aliases: tuple[str, ...] = ()

    def check(self, asked: str | None) -> str:
        """The name to answer with; raises ModelNotFound that lists what there is."""
        if asked is None:
            return self.id
        if asked in (self.id, *self.aliases):
            return asked
        known = ", ".join(f"'{name}'" for name in (self.id, *self.aliases))
        raise ModelNotFound(f"no model of that name is served here; known: {known}", param="model")


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the file and the machine decide. `identity` names the file's very bytes as far as the disk tells; `profile`
    is None for settings from the command line alone; `promised` are facts that the worker must report."""

    settings: Settings
    model: ServedModel
    text: Text
    n_ctx: int
    worker: WorkerSpec
    prefix: tuple[str, ...] = ()
    identity: tuple[int, ...] = ()
    profile: Profile | None = None
    promised: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The profile's name, "" without one."""
        return self.profile.name if self.profile else ""

    @property
    def rev(self) -> int:
        return self.profile.rev if self.profile else 0

    def needs_no_restart(self, other: "Prepared") -> bool:
        """Whether a worker of `other` is just the worker this one asks for."""
        return (self.worker, self.prefix, self.identity) == (other.worker, other.prefix, other.identity)


def prepare(
    settings: Settings, machine: Machine, profile: Profile | None = None, leaving: int | None = None
) -> Prepared:
    """Read the header, plan the memory, open the vocabulary; raises BadModelFile and DoesNotFit before any weight is
    touched. `leaving` is the worker that will be gone by then, with its memory."""
    path = settings.model_path()
    before = identity(path)
    gguf = read_gguf(path)
    name = architecture(gguf)
    shape = DecoderShape.read(gguf)
    argv, reason = prefix(settings.numa, leaving=leaving)
    if settings.numa != "off":
        log.info("numa %s: %s", settings.numa, reason)
    options = settings.engine_spec()
    freed = freed_bytes(leaving)
    if (node := bound_to(argv, leaving=leaving)) is not None:
        words = f"room on memory node {node.number}, with what the running worker has there"
        if node.room < machine.memory_available:
            machine, freed = replace(machine, memory_available=node.room, memory_reason=words), 0
        if settings.threads is None:
            options |= {name: min(options[name], len(node.cpus)) for name in ("threads", "threads_batch")}
    asked = PlanRequest(
        n_ctx=options["n_ctx"], type_k=options["type_k"], type_v=options["type_v"], load_mode=options["load_mode"],
        ubatch_size=options["ubatch_size"], parallel=options["n_parallel"], threads=options["threads"],
        expert_cache=None if options["cache_mb"] is None else options["cache_mb"] << 20,
    )  # fmt: skip
    machine = with_rates(machine, path, settings.data_dir, options["threads"])
    asked = with_draft(asked, settings.draft_path(), options["threads"])
    planned = plan(gguf, shape, machine, asked, freed)
    for warning in planned.warnings:
        log.warning("%s", warning)
    options |= {"n_ctx": planned.n_ctx, "load_mode": planned.load_mode, "is_served": True}
    options["cache_prompt"] = settings.cache_prompt
    text = open_text(gguf)
    if said := choose(text, settings, name):
        log.info("%s", said)
    for template in filter(None, (text.chat_template, text.tool_template)):
        try:
            check(template)
        except TemplateError as error:
            if settings.chat_template is not None or settings.chat_template_file is not None:
                raise
            # The file's own: completions can still be served; each chat request is told the same.
            log.warning("%s", error.message)
    meta = {
        "architecture": name, "n_ctx": planned.n_ctx, "n_ctx_train": shape.n_ctx_train, "n_vocab": shape.n_vocab,
        "n_embd": shape.n_embd, "n_params": sum(t.k * t.n_rows for t in gguf.tensors.values()), "size": gguf.n_bytes,
        "load_mode": planned.load_mode, "type_k": asked.type_k, "type_v": asked.type_v,
    }  # fmt: skip
    public = settings.alias or model_name(path)
    model = ServedModel(public, int(path.stat().st_mtime), meta, tuple(a for a in settings.aliases if a != public))
    facts = ("n_ctx", "type_k", "type_v", "batch_size", "ubatch_size", "n_parallel", "load_mode")
    promised = {fact: options[fact] for fact in facts}
    promised["ubatch_size"] = min(promised["ubatch_size"], planned.n_ctx)
    worker = WorkerSpec(str(path), options, identity=before)
    return Prepared(settings, model, text, planned.n_ctx, worker, argv, before, profile, promised)


def freed_bytes(leaving: int | None) -> int:
    """Bytes that come back when this worker is gone: its own memory and what it holds locked."""
    facts = process_memory(leaving) if leaving is not None else {}
    return int(facts.get("anon_bytes", 0)) + int(facts.get("locked_bytes", 0))


Prepare = Callable[[Settings, Machine, Profile | None, int | None], Prepared]
