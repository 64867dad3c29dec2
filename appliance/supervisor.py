"""Keeps a worker running: starts it, and starts it again. Not here: one life (life.py), requests (dispatch.py).

                    ┌─────────────── back-off 0.5, 1, 2 … 30 s ────────────────┐
    start ─▶ starting ─▶ compiling ─▶ loading ─▶ ready ─▶ (ends) ─▶ restarting ┘
                 └───────────┴────────────┴─▶ crashed   a bad model file, or too many ends without a served request
    stop  ─▶ stopped, from everywhere

A worker's memory is its process's, so all of it returns with the end. One that is started on trial is not started
again when it ends: whoever put it on trial decides, until `accept`.
"""

import asyncio
import contextvars
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from appliance.life import Life, Patience, WorkerSpec
from appliance.recent import Recent
from appliance.wire import Frame, pack
from engine.errors import ColibriError, EngineDown, EngineFailed, ModelUnreadable

State = Literal["starting", "compiling", "loading", "ready", "restarting", "crashed", "stopped"]
log = logging.getLogger("colibri.supervisor")

NO_USE_REPEATING = (2, 3)
DOES_NOT_FIT = 4
"""Exit codes of a load. Usage and a bad model file end the same way next time; what once fitted, or came from a disk
that does not give it now, may another time."""


@dataclass(frozen=True, slots=True)
class BackOff:
    """Delays between starts, and when to give up: after `ends` ends within `window_s` without a served request."""

    first_s: float = 0.5
    longest_s: float = 30.0
    ends: int = 5
    window_s: float = 120.0


class Listener(Protocol):
    """Who is told. Called on the event loop; must not block."""

    def worker_coming(self) -> None:
        """No worker for now, but one will come or it will be told otherwise."""

    def worker_ready(self, info: dict[str, Any]) -> None: ...
    def worker_frame(self, frame: Frame) -> None: ...
    def worker_lost(self, error: ColibriError) -> None:
        """It ended, another one is being started; `error` is for the requests in flight."""

    def worker_gone(self, error: ColibriError) -> None:
        """Nobody will serve until `start` is called again; `error` is for every request."""


@dataclass(slots=True)
class _Record:
    """What happened since `start`: ends without a served request in between, loads that failed in a row."""

    times: list[float] = field(default_factory=list)
    unready: int = 0
    ever_ready: bool = False


class Supervisor:
    """One worker at a time. All methods belong to one event loop.

    To be read at any time: `state`; `progress`, the load's stage, done, total, note; `info`, the ready worker's facts
    with its last beat under "beat" and what is in its cache under "experts"; `recent`, what it used up lately; `error`,
    why it is crashed; `restarts`; `log_tail`, the last lines of its stderr.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        *,
        prefix: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        patience: Patience | None = None,
        back_off: BackOff | None = None,
    ) -> None:
        self.spec = spec
        self.state: State = "stopped"
        self.progress: dict[str, Any] | None = None
        self.info: dict[str, Any] = {}
        self.error: ColibriError | None = None
        self.restarts = 0
        self.recent = Recent()
        self._prefix = tuple(prefix)
        self._env = dict(os.environ if env is None else env)
        self._patience = patience or Patience()
        self._back_off = back_off or BackOff()
        self._listeners: list[Listener] = []
        self._life: Life | None = None
        self._task: asyncio.Task[None] | None = None
        self._record = _Record()
        self._trial = False
        self._wakers: set[asyncio.Future[None]] = set()

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def start(self, spec: WorkerSpec | None = None, prefix: Sequence[str] = (), *, stop_s: float | None = None,
                    trial: bool = False) -> None:  # fmt: skip
        """Begin to keep a worker running, of another `spec` if one is given; returns at once. After `crashed` or
        `stopped` it begins anew. `stop_s` is how long it may take to leave politely."""
        if self._task is not None and not self._task.done():
            assert spec is None, "another worker is there; stop it first"
            return
        if spec is not None:
            self.spec, self._prefix = spec, tuple(prefix)
        if stop_s is not None:
            self._patience = replace(self._patience, stop_s=stop_s)
        self._trial = trial
        self._record = _Record()
        self.error = None
        self._enter("starting")
        self._tell_coming()
        # A context of its own: its log lines are not those of the request that asked for it.
        self._task = asyncio.create_task(self._keep(), name="supervisor", context=contextvars.Context())

    async def stop(self, between: ColibriError | None = None, within_s: float | None = None) -> None:
        """End the worker: politely, then for certain, at the latest after `within_s`. Its memory is free when this
        returns.

        With `between` another one follows: requests in flight get that error and the others wait.
        """
        if self._task is not None:
            if not self._task.cancelling():  # a second one would cut the burial short
                self._task.cancel()
            await asyncio.wait((self._task,), timeout=within_s)
            if not self._task.done() and self._life is not None:
                self._life.kill()
            await asyncio.wait((self._task,))
            self._task = None
        self._enter("stopped")
        for listener in self._listeners:
            if between is not None:
                listener.worker_lost(between)
            else:
                listener.worker_gone(EngineDown("the server is shutting down; ask again when it is back"))

    def accept(self) -> None:
        """The trial is over: from now on an end is mended by a new start. Raises what it ended of a moment ago."""
        if self.state != "ready":
            raise self.error or EngineFailed("the engine process on trial has ended")
        self._trial = False

    async def ready(self) -> dict[str, Any]:
        """Wait for the worker; its facts, or the exception for which there will be none."""
        while self.state != "ready":
            if self.state in ("crashed", "stopped"):
                raise self.error or EngineDown("the engine is stopped; start it first")
            waker = asyncio.get_running_loop().create_future()
            self._wakers.add(waker)
            await waker
        return self.info

    def send(self, frame: Frame) -> None:
        """Hand a frame to the ready worker; raises EngineDown without one, WireError if it is too large."""
        data = pack(frame)
        if self._life is None or not self._life.send(data):
            raise EngineDown("the engine process is not there; it is being restarted, send the request again")

    def served(self) -> None:
        """A request was answered in full: earlier ends are forgiven."""
        self._record.times.clear()

    @property
    def pid(self) -> int | None:
        """The worker's process id while it lives."""
        return self._life.pid if self._life is not None else None

    @property
    def log_tail(self) -> list[str]:
        return list(self._life.tail) if self._life is not None else []

    async def _keep(self) -> None:
        while True:
            life = self._life = Life(self._patience, self._take, self._tell_coming)
            await life.run(self.spec, self._prefix, self._env)
            if self._trial:
                return self._fail_trial(life)
            if life.fatal is not None and not life.was_ready and self._is_final(life.fatal):
                return self._give_up(life.fatal, f"no model is loaded: {life.fatal.message}")
            if (often := self._too_often(life)) is not None:
                text = f"the engine process ended {often} ({life.reason}); mend the cause, then restart the server"
                return self._give_up(EngineDown(text), text)
            log.error("the engine process ended: %s", life.reason)
            self.restarts += 1
            self._enter("restarting")
            clause = f"the engine process ended while answering ({life.reason})"
            for listener in self._listeners:
                listener.worker_lost(EngineFailed(f"{clause}; it is being restarted, send the request again"))
            n = max(len(self._record.times), self._record.unready, 1)
            await asyncio.sleep(min(self._back_off.longest_s, self._back_off.first_s * 2 ** (n - 1)))
            self._enter("starting")

    def _fail_trial(self, life: Life) -> None:
        self.error = life.fatal or EngineFailed(f"the engine process ended: {life.reason}")
        log.error("the engine process on trial ended: %s", life.reason)
        self._enter("crashed")
        for listener in self._listeners:
            listener.worker_lost(self.error)

    def _is_final(self, error: ColibriError) -> bool:
        if error.exit_code == DOES_NOT_FIT or isinstance(error, ModelUnreadable):
            return not self._record.ever_ready
        return error.exit_code in NO_USE_REPEATING

    def _too_often(self, life: Life) -> str | None:
        """Count an end; words for giving up. Loads count without a clock: five that die of memory after a minute each
        are as hopeless as five ends within two minutes."""
        now, record, limit = time.monotonic(), self._record, self._back_off
        record.unready = 0 if life.was_ready else record.unready + 1
        record.times = [end for end in record.times if now - end < limit.window_s] + [now]
        if record.unready >= limit.ends:
            return f"{record.unready} times before it was ready"
        if len(record.times) >= limit.ends:
            return f"{len(record.times)} times within {limit.window_s:.0f} s without serving a request"
        return None

    def _give_up(self, cause: ColibriError, text: str) -> None:
        log.error("%s", text)
        self.error = cause
        self._enter("crashed")
        for listener in self._listeners:
            listener.worker_gone(EngineDown(text))

    def _tell_coming(self) -> None:
        for listener in self._listeners:
            listener.worker_coming()

    def _take(self, frame: Frame) -> None:
        match frame["type"]:
            case "progress":
                self._enter("compiling" if frame["stage"] == "compile" else "loading")
                self.progress = {key: frame[key] for key in ("stage", "done", "total", "note")}
            case "ready":
                self._record.ever_ready = True
                self._enter("ready")
                self.info = {key: value for key, value in frame.items() if key != "type"}
                words = (frame.get(key, "?") for key in ("cpu", "isa", "isa_reason"))
                log.info("engine: CPU %s, kernels %s: %s", *words)
                for listener in self._listeners:
                    listener.worker_ready(self.info)
            case "beat":
                if self.state == "ready":
                    self.recent.take(frame.get("spent"))
                    self.info |= {"beat": frame, "rss_anon": frame["rss_anon"]}
            case "experts":
                if self.state == "ready":
                    self.info |= {"experts": frame}
            case _:
                for listener in self._listeners:
                    listener.worker_frame(frame)

    def _enter(self, state: State) -> None:
        if state != self.state:
            log.info("engine: %s", state)
        self.state = state
        if state != "ready":
            self.info = {}
            self.recent.forget()
        if state not in ("compiling", "loading"):
            self.progress = None
        for waker in self._wakers:
            if not waker.done():
                waker.set_result(None)
        self._wakers.clear()
