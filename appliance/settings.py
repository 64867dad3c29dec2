"""Every knob of Colibri, once: its default, its reason, who reads it; and how layers of values become one.

    default  <  profile  <  COLIBRI_* in the environment  <  flag on the command line

A value that nobody would read is an error, never ignored. Not here: YAML (profiles/), argparse (cli/flags.py), where
a model file lies (model_files.py), what the machine offers (host.py).
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from appliance.knobs import Auto, AutoOrNone, Folder, Offline, Words, knob
from appliance.model_files import default_model, existing_model
from appliance.names import hint
from engine.errors import UsageError
from engine.speculate import drafts_with_model

if TYPE_CHECKING:
    from engine.load import EngineOptions
    from engine.sampling import Sampling

PREFIX = "COLIBRI_"
# Read before settings exist (numba must know its level before the first kernel is imported), hence no Settings field.
PROCESS_ENV = {
    "COLIBRI_ISA": ("engine.kernels.isa", "instructions to use: v2, v3, vnni, avx512, neon; unset: all the CPU has"),
    "COLIBRI_KERNEL_CACHE": ("engine.kernels.jit", "folder of compiled kernels"),
    "COLIBRI_CHECKED": ("engine.kernels.regions", "1 checks every access of the kernels to memory, slowly"),
    "COLIBRI_URL": ("appliance.cli.remote", "address of a running service, for status, profile and tui"),
    "COLIBRI_ADMIN_KEY": ("appliance.cli.remote", "admin key for it; unset: the one in the data folder"),
    "COLIBRI_USER": ("appliance.cli.remote", "name that the service's log gives to a change"),
    "COLIBRI_DEBUG": ("appliance.cli.main", "1 prints the traceback of an error that nobody foresaw"),
}

TERMINAL_PREFIX = PREFIX + "TUI_"
"""Settings of the terminal program, which reads and checks them itself."""

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0"]


def user_data_dir(env: Mapping[str, str] = os.environ) -> Path:
    """The folder that the user's desktop rules name for data; the image sets COLIBRI_DATA_DIR instead."""
    return Path(env.get("XDG_DATA_HOME") or "~/.local/share", "colibri").expanduser()


class Settings(BaseModel):
    """One value for every knob, checked; made by `resolve`, never changed afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), validate_default=True)

    model: str | None = knob(
        None, "GGUF file, or its name inside the models folder", "engine", "appliance.settings", short=("-m",))
    models_dir: Folder | None = knob(
        None, "folder with GGUF files", "process", "appliance.settings", "none given")
    alias: str | None = knob(
        None, "name that clients use for the model", "serving", "appliance.settings",
        "unset: the file's name without .gguf", short=("-a",))
    aliases: Words = knob((), "further names for the model, with commas", "serving", "appliance.swaps.prepare", "none")
    default_model: str | None = knob(
        None, "the model where neither profile, environment nor flag names one", "process", "appliance.settings",
        "unset: the only file of the models folder")
    default_alias: str | None = knob(
        None, "name that clients use for the default model", "process", "appliance.settings",
        "unset: the file's name without .gguf")
    chat_template: str | None = knob(
        None, "chat template: a known family's name (chatml, llama3 …) or its text", "serving",
        "appliance.chat_template", "unset: the model file's own, else its family's", max_length=1 << 20)
    chat_template_file: Folder | None = knob(
        None, "file with a chat template for whatever model is served", "process", "appliance.chat_template", "none")
    ctx_size: int = knob(
        0, "positions in the context, 0 lets the planner choose", "engine", "engine.planner",
        "the trained length, at most 8192", short=("-c",), ge=0, le=1 << 30)
    threads: Auto = knob(
        None, "threads that compute, or auto", "engine", "engine.load",
        "physical cores this process may use, within its CPU quota", short=("-t",), ge=1, le=255)
    threads_batch: Auto = knob(
        None, "threads while a prompt is read, or auto", "engine", "engine.load", "as many as threads",
        short=("-tb",), ge=1, le=255)
    batch_size: int = knob(
        512, "most rows of all sequences in one step", "engine", "engine.load",
        "64 rows already fill the tile kernels; more only delays others", short=("-b",), ge=1, le=8192)
    ubatch_size: int = knob(
        512, "rows per pass over the weights", "engine", "engine.load", "one pass per step", short=("-ub",),
        ge=1, le=8192)
    cache_type_k: CacheType = knob(
        "f16", "type of the cached keys: f32, f16, bf16, q8_0 or q4_0", "engine", "engine.load", "exact",
        short=("-ctk",))
    cache_type_v: CacheType = knob(
        "f16", "type of the cached values: f32, f16, bf16, q8_0 or q4_0", "engine", "engine.load", "exact",
        short=("-ctv",))
    load_mode: Literal["auto", "resident", "mmap", "mlock", "stream"] = knob(
        "auto", "where the weights live: auto, resident (own memory), mmap (the file's pages), mlock, stream (in part)",
        "engine", "engine.planner", "resident when it fits, else stream", short=("-lm",))
    cache_mb: AutoOrNone = knob(
        None, "MiB of memory for the experts of a mixture that streams, 0 for none, or auto", "engine",
        "engine.planner", "what dense weights leave of the memory", ge=0, le=1 << 24)
    cache_prompt: bool = knob(
        True, "keep the cache of a text that ended for the next one that begins the same", "engine", "engine.load",
        "it takes no memory of its own")
    parallel: int = knob(
        1, "sequences computed at once; others wait in the queue", "engine", "engine.load",
        "one generation at a time", short=("-np",), ge=1, le=64)
    spec_type: Literal["auto", "none", "ngram-simple", "draft-simple"] = knob(
        "auto",
        "guess tokens, compute several a pass, same answer: auto, none, ngram-simple (text), draft-simple (model)",
        "engine", "engine.speculate",
        "draft-simple with a draft model, ngram-simple where each pass over a dense model reads from disk, else none")
    spec_ngram_simple_size_n: int = knob(
        1, "last tokens at least that must stand earlier in the text for a guess", "engine", "engine.lookup",
        "how often guesses are right is measured, short ones too", ge=1, le=32)
    spec_ngram_simple_size_m: int = knob(
        15, "most guesses in one pass", "engine", "engine.meter", "a pass of 16 rows; fewer where more do not pay",
        ge=1, le=15)
    spec_draft_model: str | None = knob(
        None, "smaller GGUF file of the same vocabulary, or its name inside the models folder, that guesses", "engine",
        "engine.load", "none", short=("-md",))
    spec_draft_n_max: int = knob(
        15, "most guesses of the draft model in one pass", "engine", "engine.meter", "fewer where more do not pay",
        ge=1, le=15)
    numa: Literal["off", "distribute", "isolate", "numactl"] = knob(
        "off", "memory on several nodes: off, distribute (over all), isolate (the one with most room), numactl (as is)",
        "engine", "appliance.machine.numa", "one node needs nothing")

    host: str = knob("127.0.0.1", "address to listen on", "process", "appliance.api", "only this machine may ask")
    port: int = knob(8080, "port to listen on, 0 for any free one", "process", "appliance.api", ge=0, le=65535)
    api_key: str | None = knob(
        None, "key that clients must send; several with commas", "process", "appliance.api",
        "unset: keys are kept in the data folder", secret=True, min_length=1)
    api_key_file: Folder | None = knob(
        None, "file with one key per line", "process", "appliance.api", "unset: keys are kept in the data folder")
    ssl_key_file: Folder | None = knob(
        None, "private key of the certificate, PEM", "process", "appliance.api", "unset: plain HTTP")
    ssl_cert_file: Folder | None = knob(
        None, "certificate with its chain, PEM; with ssl_key_file the service speaks HTTPS", "process",
        "appliance.api", "unset: plain HTTP")
    no_auth: bool = knob(
        False, "answer /v1 without a key; /admin still needs one", "process", "appliance.api", "closed unless asked")
    cors_origin: Words = knob((), "web origins that may ask, with commas", "process", "appliance.api", "none")
    allowed_host: Words = knob(
        (), "further Host headers to accept, with commas", "process", "appliance.api",
        "the listening address and localhost")
    metrics: bool = knob(True, "serve /metrics", "process", "appliance.api", "a server nobody can watch is no server")
    max_queue: int = knob(
        8, "requests that may wait; the next one gets 429", "serving", "appliance.dispatch",
        "one box answers one at a time: a longer queue outlives its clients", ge=0, le=10_000)
    max_queue_batch: int = knob(
        64, "rows of batches that may wait; they come after everybody else", "serving", "appliance.dispatch",
        "nobody watches a row: it may wait, but not without bound", ge=0, le=10_000)
    queue_timeout: float = knob(
        300.0, "seconds a request may wait", "serving", "appliance.dispatch", "clients give up after 600", gt=0,
        le=86_400)
    timeout: float = knob(
        3600.0, "seconds one answer may take in all", "serving", "appliance.api", "llama-server's figure", gt=0,
        le=604_800)
    handover: str | None = knob(
        None, "text that is answered, marked as a hand-over, where no answer can come in time", "serving",
        "appliance.api", "unset: an error that says when to come back", min_length=1, max_length=2000)

    fallback: str = knob("fallback", "profile that is started when this one and the one before it cannot be",
                         "serving", "appliance.swaps.swapper", "the profile made for that")
    drain_timeout: float = knob(60.0, "seconds that answers under way get before a swap", "serving",
                                "appliance.swaps.swapper", "a short answer's length on a slow box", ge=0, le=86_400)
    drain_policy: Literal["finish", "cancel"] = knob(
        "finish", "after drain_timeout: finish waits on, cancel ends the answers with an error", "serving",
        "appliance.swaps.swapper", "an answer half given is an answer lost")
    stop_timeout: float = knob(15.0, "seconds the old worker gets to leave before it is killed", "serving",
                               "appliance.swaps.swapper", "it needs 5 at most", gt=0, le=600)
    start_timeout: float = knob(180.0, "seconds without progress while the new worker starts and compiles", "serving",
                                "appliance.swaps.swapper", "a new CPU compiles for a minute, once", gt=0, le=86_400)
    warm_timeout: float = knob(600.0, "seconds for reading the weights and the warm-up prompt", "serving",
                               "appliance.swaps.swapper", "30 GB from a slow disk", gt=0, le=86_400)
    check_timeout: float = knob(60.0, "seconds for the probe that must be answered before requests are", "serving",
                                "appliance.swaps.swapper", "a slow box writes a few words in that time", gt=0, le=3600)
    warmup_prompt: str = knob("The quick brown fox jumps over the lazy dog.",
                              "text that the new worker reads before it serves", "serving", "appliance.swaps.swapper",
                              "any text touches all weights", min_length=1, max_length=20_000)
    warmup_tokens: int = knob(8, "tokens that the probe must write", "serving", "appliance.swaps.swapper",
                              "enough to see a speed", ge=1, le=256)

    data_dir: Folder = knob(
        Path("~/.local/share/colibri"), "folder for keys and profiles", "process", "appliance.keys",
        "the user's data folder; /data in the image")

    log_file: Folder | None = knob(None, "write the log there, not to stderr", "process", "appliance.logs", "stderr")
    log_jsonl: bool = knob(False, "one JSON object per log line", "process", "appliance.logs", "people read it first")
    log_level: Literal["debug", "info", "warning", "error"] = knob(
        "info", "least severity that is logged", "process", "appliance.logs")
    offline: Offline = knob(
        True, "accepted for llama-server's sake: Colibri never goes online", "process", "appliance.settings",
        "there is no other way")

    n_predict: int = knob(
        -1, "most tokens of an answer, -1 until it ends or the context is full", "serving", "appliance.settings",
        "no cut but the context", short=("-n",), ge=-1, lt=1 << 31)
    temp: float = knob(0.8, "temperature, 0 takes the likeliest token", "serving", "appliance.settings",
                       "llama-server's figure", ge=0, le=100)
    top_k: int = knob(40, "choose among the k likeliest, 0 for all", "serving", "appliance.settings",
                      "llama-server's figure", ge=0, lt=1 << 31)
    top_p: float = knob(0.95, "choose among the likeliest that hold this probability", "serving",
                        "appliance.settings", "llama-server's figure", ge=0, le=1)
    min_p: float = knob(0.05, "least probability relative to the likeliest", "serving", "appliance.settings",
                        "llama-server's figure", ge=0, le=1)
    typical_p: float = knob(1.0, "locally typical sampling, 1 is off", "serving", "appliance.settings", "off",
                            ge=0, le=1)
    repeat_penalty: float = knob(1.0, "divides logits of recent tokens, 1 is off", "serving", "appliance.settings",
                                 "off", ge=0.01, le=100)
    repeat_last_n: int = knob(64, "tokens that count as recent, -1 for all", "serving", "appliance.settings",
                              "llama-server's figure", ge=-1, lt=1 << 31)
    presence_penalty: float = knob(0.0, "taken off tokens that occurred", "serving", "appliance.settings", "off",
                                   ge=-2, le=2)
    frequency_penalty: float = knob(0.0, "taken off tokens per occurrence", "serving", "appliance.settings", "off",
                                    ge=-2, le=2)
    seed: int | None = knob(None, "number that makes sampling repeatable", "serving", "appliance.settings",
                            "drawn anew for each answer", short=("-s",), ge=-1, lt=1 << 64)

    def model_path(self) -> Path:
        """The model file as it lies on disk; raises BadModelFile or UsageError naming what there is instead."""
        return existing_model(self.model, self.models_dir)

    def draft_path(self) -> Path | None:
        """The draft model as it lies on disk, None where none guesses; raises like `model_path`, and UsageError where
        it contradicts spec_type."""
        if not drafts_with_model(self.spec_type, self.spec_draft_model):
            return None
        return existing_model(self.spec_draft_model, self.models_dir)

    def heat_dir(self) -> Path:
        """Where it is kept how much each expert of a model is used."""
        return self.data_dir / "heat"

    def engine_spec(self) -> dict[str, Any]:
        """The arguments of EngineOptions as plain values: what the worker gets, and no numba is loaded for it."""
        from appliance.machine.host import default_threads, read_machine

        threads, draft = self.threads or default_threads(read_machine()), self.draft_path()
        return {
            "n_ctx": self.ctx_size,
            "threads": threads,
            "threads_batch": self.threads_batch or threads,
            "batch_size": self.batch_size,
            "ubatch_size": min(self.ubatch_size, self.batch_size),
            "type_k": self.cache_type_k,
            "type_v": self.cache_type_v,
            "load_mode": self.load_mode,
            "cache_mb": self.cache_mb,
            "n_parallel": self.parallel,
            "heat_dir": str(self.heat_dir()),
            "spec_type": self.spec_type,
            "spec_ngram_simple_size_n": self.spec_ngram_simple_size_n,
            "spec_ngram_simple_size_m": self.spec_ngram_simple_size_m,
            "spec_draft_model": None if draft is None else str(draft),
            "spec_draft_n_max": self.spec_draft_n_max,
        }

    def engine_options(self) -> "EngineOptions":
        """What `engine.load.load_engine` asks for."""
        from engine.load import EngineOptions

        return EngineOptions(**self.engine_spec())

    def sampling(self) -> "Sampling":
        """The samplers' settings where a request says nothing."""
        from engine.sampling import Sampling

        seed = None if self.seed in (None, -1) else self.seed
        return Sampling(
            temperature=self.temp, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p, typical_p=self.typical_p,
            repeat_penalty=self.repeat_penalty, repeat_last_n=self.repeat_last_n,
            presence_penalty=self.presence_penalty, frequency_penalty=self.frequency_penalty, seed=seed,
        )  # fmt: skip


class Provenance(NamedTuple):
    """One row of `config explain`."""

    value: object
    source: str
    reason: str
    read_by: str


class Resolved(NamedTuple):
    """The settings in force and, for each key, where its value came from."""

    settings: Settings
    provenance: dict[str, Provenance]


def about(key: str) -> dict[str, Any]:
    """What `knob` said of the field: kind, reader, why, short, secret."""
    extra = Settings.model_fields[key].json_schema_extra
    assert isinstance(extra, dict)
    return extra


def flag_of(key: str) -> str:
    return "--" + key.replace("_", "-")


def resolve(flags: Mapping[str, Any], env: Mapping[str, str] = os.environ,
            profile: Mapping[str, Any] | None = None) -> Resolved:  # fmt: skip
    """Lay the four layers on each other; raises UsageError for an unknown name or a value out of range.

    `flags` holds only what was given, by field name; a profile may carry its `name` for the provenance. An empty
    environment variable counts as unset, since compose files pass those on.
    """
    profile = dict(profile or {})
    profile_name = profile.pop("name", "given")
    layers: list[tuple[Callable[[str], str], Mapping[str, Any]]] = [
        (lambda key: f"profile {profile_name}", profile),
        (lambda key: f"env {PREFIX}{key.upper()}", _from_environment(env)),
        (lambda key: f"flag {flag_of(key)}", {k: v for k, v in flags.items() if v is not None}),
    ]
    values: dict[str, Any] = {"data_dir": user_data_dir(env)}
    sources: dict[str, str] = {}
    for source, layer in layers:
        for key, value in layer.items():
            if key not in Settings.model_fields:
                raise UsageError(f"{source(key)}: nothing reads '{key}'{hint(key, Settings.model_fields)}")
            values[key], sources[key] = value, source(key)
    settings = _checked(values, sources)
    reason = ""
    if settings.model is None and settings.default_model is not None:
        named = {"model": settings.default_model, "alias": settings.alias or settings.default_alias}
        settings, reason = settings.model_copy(update=named), "the default model, since nothing names another"
    elif settings.model is None and (found := default_model(settings.models_dir)):
        settings, reason = settings.model_copy(update={"model": str(found[0])}), found[1]
    rows = {key: _provenance(settings, key, sources.get(key, "default")) for key in Settings.model_fields}
    if reason:
        rows["model"] = rows["model"]._replace(reason=reason)
    return Resolved(settings, rows)


def _from_environment(env: Mapping[str, str]) -> dict[str, str]:
    known = {PREFIX + key.upper(): key for key in Settings.model_fields} | {PREFIX + "PROFILE": ""}
    found = {}
    for name, value in sorted(env.items()):
        if not name.startswith(PREFIX) or name in PROCESS_ENV or name.startswith(TERMINAL_PREFIX):
            continue
        if name not in known:
            raise UsageError(f"{name} is set, but nothing reads it{hint(name, [*known, *PROCESS_ENV])}")
        if value.strip() and known[name]:
            found[known[name]] = value.strip()
    return found


def _checked(values: Mapping[str, Any], sources: Mapping[str, str]) -> Settings:
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = str(first["loc"][0])
        shown = "" if about(key)["secret"] else f"={first['input']}"
        help_ = Settings.model_fields[key].description
        raise UsageError(f"{sources[key]}{shown}: {plain(first['msg'])} ({help_})", param=key) from None


def plain(message: str) -> str:
    """Pydantic's words with a small first letter, so that they go on with our sentence."""
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _provenance(settings: Settings, key: str, source: str) -> Provenance:
    field, extra = Settings.model_fields[key], about(key)
    value = getattr(settings, key)
    shown = "(hidden)" if extra["secret"] and value is not None else _shown(value)
    reason = extra["why"] if source == "default" else f"given; default {_shown(default_of(field))}"
    return Provenance(shown, source, str(reason), str(extra["reader"]))


def default_of(field: FieldInfo) -> object:
    return field.get_default(call_default_factory=True)


def _shown(value: object) -> object:
    """A value as JSON can hold it."""
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
