"""What every handler may use, in one value that the application carries. Not here: handlers, how it is made."""

import time
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import metadata
from typing import Any, Protocol

from aiohttp import web

from appliance.admission import Admission
from appliance.api.errors import Draining
from appliance.api.generation import Generations, Submits
from appliance.keys import KeyRing
from appliance.metrics import Metrics
from appliance.settings import Settings
from engine.errors import ColibriError, ModelNotFound


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


@dataclass(slots=True)
class Services:
    """Everything behind the routes. `draining` is set once, when the server is told to stop."""

    settings: Settings
    model: ServedModel
    admission: Admission
    dispatcher: Dispatches
    supervisor: Supervises
    keys: KeyRing
    metrics: Metrics
    body_cap: int
    version: str = VERSION
    draining: bool = False
    started: float = field(default_factory=time.time)
    generations: Generations = field(init=False)

    def __post_init__(self) -> None:
        self.generations = Generations(self.dispatcher, self.metrics)

    def check_open(self) -> None:
        """Raise Draining once the server has been told to stop."""
        if self.draining:
            raise Draining("the server is shutting down and takes no new requests", retry_after_s=10)

    def fingerprint(self) -> str:
        """Names build, weights and kernels: the same value means the same answers to the same seed."""
        info = self.supervisor.info
        facts = [self.version, *(str(info.get(name)) for name in ("model_digest", "isa", "type_k", "type_v"))]
        return "fp_" + sha256("|".join(facts).encode()).hexdigest()[:12]


SERVICES = web.AppKey("services", Services)
KEY_NAME = web.RequestKey("key_name", str)
REQUEST_ID = web.RequestKey("request_id", str)
