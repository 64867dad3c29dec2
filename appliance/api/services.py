"""What every handler may use, in one value that the application carries. Not here: handlers, how it is made."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import metadata
from typing import Any, Protocol

from aiohttp import web

from appliance.admission import Admission, Renders
from appliance.api.body import body_cap
from appliance.api.errors import Draining
from appliance.api.generation import Generations, Submits
from appliance.batches.executor import Executor
from appliance.chronicle import Chronicle
from appliance.events import Events
from appliance.handoffs import Handoffs, handoff_id
from appliance.key_lines import Key
from appliance.keys import KeyRing
from appliance.loglines import LogLines
from appliance.machine.gauges import Gauges
from appliance.metrics import Metrics
from appliance.profiles import ProfileStore
from appliance.rates import Allowance
from appliance.recent import Recent
from appliance.settings import Settings
from appliance.swaps.prepare import Prepared, ServedModel
from appliance.swaps.swapper import Swapper
from engine.errors import ColibriError


def _version() -> str:
    try:
        return metadata.version("colibri-runtime")
    except metadata.PackageNotFoundError:
        return "checkout"


VERSION = _version()
"""Of the installed distribution."""


class Dispatches(Submits, Protocol):
    """The dispatcher, as the API sees it."""

    def snapshot(self) -> dict[str, Any]: ...
    def held(self) -> dict[str, Any]: ...


class Supervises(Protocol):
    """The supervisor, as the API sees it; see appliance/supervisor.py for the states."""

    @property
    def state(self) -> str: ...
    @property
    def progress(self) -> dict[str, Any] | None: ...
    @property
    def info(self) -> dict[str, Any]: ...
    @property
    def error(self) -> ColibriError | None: ...
    @property
    def restarts(self) -> int: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def recent(self) -> Recent: ...


@dataclass(slots=True)
class Services:
    """Everything behind the routes. `draining` is set once, when the server is told to stop. `settings`, `model`,
    `admission` and `body_cap` belong to the profile in force: `serve` replaces them and counts `epoch` up."""

    settings: Settings
    model: ServedModel
    admission: Admission
    renderer: Renders
    dispatcher: Dispatches
    supervisor: Supervises
    keys: KeyRing
    metrics: Metrics
    store: ProfileStore
    swapper: Swapper
    events: Events
    loglines: LogLines
    gauges: Gauges
    body_cap: int
    batches: Executor
    version: str = VERSION
    draining: bool = False
    epoch: int = 0
    started: float = field(default_factory=time.time)
    generations: Generations = field(init=False)
    chronicle: Chronicle = field(init=False)
    handoffs: Handoffs = field(init=False)

    def __post_init__(self) -> None:
        self.handoffs = Handoffs(self.settings.data_dir)
        self.chronicle = Chronicle(self.events, lambda: self.swapper.current is not None)
        self.metrics.on_answer = self.chronicle.answered
        self.generations = Generations(self.dispatcher, self.metrics, self)
        self.swapper.answers, self.swapper.serve = self.generations, self.serve
        self.swapper.on_end = lambda swap: self.metrics.switched(swap.state, swap.took_s)

    def serve(self, prepared: Prepared) -> None:
        """Speak for another profile from now on. Nothing may be running that began under the one before."""
        self.settings, self.model = prepared.settings, prepared.model
        self.admission = admit(prepared, self.renderer, self.admission.threads)
        self.body_cap = body_cap(prepared.n_ctx)
        self.epoch += 1
        self.metrics.serves(prepared.model.id)

    @property
    def is_undecided(self) -> bool:
        """Whether requests wait for a profile that nobody knows yet."""
        return self.swapper.is_undecided

    def handover(self) -> str | None:
        """The text that hands over to a person where no answer can come in time, if the profile has one."""
        return self.settings.handover

    def handed_over(self, answer: str, reason: str, owner: str) -> None:
        """The client of this answer got the hand-over text."""
        self.handoffs.add({
            "id": handoff_id(answer), "time": round(time.time(), 3), "reason": reason, "model": self.model.id,
            "key": owner,
        })  # fmt: skip
        self.events.tell("request", f"handed over to a person ({reason})", "warning", handoff=handoff_id(answer))

    def engine_info(self) -> dict[str, Any]:
        """What the engine said of itself."""
        return self.supervisor.info

    def check_open(self) -> None:
        """Raise Draining once the server has been told to stop."""
        if self.draining:
            raise Draining("the server is shutting down and takes no new requests", retry_after_s=10)

    def fingerprint(self) -> str:
        """Names build, weights and kernels: the same value means the same answers to the same seed."""
        info = self.supervisor.info
        facts = [self.version, *(str(info.get(name)) for name in ("model_digest", "isa", "type_k", "type_v"))]
        return "fp_" + sha256("|".join(facts).encode()).hexdigest()[:12]


def admit(prepared: Prepared, renderer: Renders, threads: ThreadPoolExecutor | None = None) -> Admission:
    """The text side of a profile."""
    s, n_ctx = prepared.settings, prepared.n_ctx
    return Admission(
        prepared.text, renderer, n_ctx=n_ctx, defaults=s.sampling(), n_predict=s.n_predict, threads=threads
    )


SERVICES = web.AppKey("services", Services)
KEY = web.RequestKey("key", Key)
RATE = web.RequestKey("rate", Allowance)
KEY_NAME = web.RequestKey("key_name", str)
IS_ADMIN = web.RequestKey("is_admin", bool)
REQUEST_ID = web.RequestKey("request_id", str)
