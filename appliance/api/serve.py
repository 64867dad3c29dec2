"""`colibri serve`: from settings to a listening server and back down. Not here: routes, the command line.

Order of the start: the port (taken: exit 5), the file and its plan (bad: 3, too large: 4), the keys, then the socket
answers while the engine loads. On SIGTERM or SIGINT: no new requests, DRAIN_S for those under way, then the end; a
second signal ends the draining.
"""

import asyncio
import contextlib
import errno
import signal
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

from aiohttp import web

from appliance import logs
from appliance.admission import Admission
from appliance.api import heap
from appliance.api.app import make_app
from appliance.api.body import body_cap
from appliance.api.errors import Draining
from appliance.api.protocol import LIMITS, Connection
from appliance.api.services import ServedModel, Services
from appliance.dispatch import Dispatcher
from appliance.host import read_machine
from appliance.keys import open_keys
from appliance.life import WorkerSpec
from appliance.metrics import Metrics
from appliance.settings import Resolved, Settings
from appliance.supervisor import Supervisor
from appliance.templates import Renderer, check
from engine.errors import TemplateError, Unreachable
from engine.gguf.reader import read_gguf
from engine.models.registry import architecture
from engine.models.shape import DecoderShape
from engine.planner import PlanRequest, plan
from engine.text import Text, open_text

DRAIN_S = 12.0
"""Compose gives the container 20 s to end; the worker needs up to 5 of them."""
BACKLOG = 128
log = logs.get_logger("colibri.serve")


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the file and the machine decide before anything runs."""

    model: ServedModel
    text: Text
    n_ctx: int
    worker: WorkerSpec


def run(resolved: Resolved) -> int:
    """Serve until told to stop; 0 after SIGTERM, 130 after SIGINT. Raises what the start cannot do."""
    settings = resolved.settings
    heap.settle()
    logs.start(settings)
    with bind(settings.host, settings.port) as door:
        prepared = prepare(settings)
        return asyncio.run(_serve(settings, prepared, door))


def bind(host: str, port: int) -> socket.socket:
    """The listening socket; raises Unreachable that names the port and what to do."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise Unreachable(f"there is no address of the name {host}; give --host an address of this machine") from None
    door = socket.socket(family, kind, proto)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(address)
        door.listen(BACKLOG)
    except OSError as error:
        door.close()
        if error.errno == errno.EADDRINUSE:
            raise Unreachable(
                f"port {port} on {host} is taken; stop what listens there or choose another with --port"
            ) from None
        raise Unreachable(
            f"cannot listen on {host} port {port} ({error.strerror}); choose others with --host and --port"
        ) from None
    door.setblocking(False)
    return door


def prepare(settings: Settings) -> Prepared:
    """Read the header, plan the memory, open the vocabulary; raises BadModelFile and DoesNotFit before any weight is
    touched."""
    path = settings.model_path()
    gguf = read_gguf(path)
    name = architecture(gguf)
    shape = DecoderShape.read(gguf)
    options = settings.engine_spec()
    asked = PlanRequest(
        n_ctx=options["n_ctx"], type_k=options["type_k"], type_v=options["type_v"], load_mode=options["load_mode"],
        ubatch_size=options["ubatch_size"], parallel=options["n_parallel"], threads=options["threads"],
    )  # fmt: skip
    planned = plan(gguf, shape, read_machine(), asked)
    for warning in planned.warnings:
        log.warning("%s", warning)
    options |= {"n_ctx": planned.n_ctx, "load_mode": planned.load_mode}
    text = open_text(gguf)
    if text.chat_template is not None:
        try:
            check(text.chat_template)
        except TemplateError as error:
            # Completions can still be served; each chat request is told the same.
            log.warning("%s", error.message)
    public = settings.alias or path.name.removesuffix(".gguf")
    meta = {
        "architecture": name, "n_ctx": planned.n_ctx, "n_ctx_train": shape.n_ctx_train, "n_vocab": shape.n_vocab,
        "n_embd": shape.n_embd, "n_params": sum(t.k * t.n_rows for t in gguf.tensors.values()), "size": gguf.n_bytes,
        "load_mode": planned.load_mode, "type_k": asked.type_k, "type_v": asked.type_v,
    }  # fmt: skip
    model = ServedModel(id=public, created=int(path.stat().st_mtime), meta=meta)
    return Prepared(model, text, planned.n_ctx, WorkerSpec(str(path), options))


async def _serve(settings: Settings, prepared: Prepared, door: socket.socket) -> int:
    stop = _Signals()
    async with running(settings, prepared) as services, listening(make_app(services), door):
        host, port = door.getsockname()[:2]
        where = f"[{host}]" if ":" in host else host
        sys.stderr.write(f"listening on http://{where}:{port}, model {services.model.id}\n")
        sys.stderr.flush()
        number = await stop.first()
        log.info("stopping on %s", signal.Signals(number).name)
        await _drain(services, stop)
    return 128 + number if number == signal.SIGINT else 0


@contextlib.asynccontextmanager
async def running(settings: Settings, prepared: Prepared) -> AsyncIterator[Services]:
    """The parts behind the routes, started and in the end stopped in order."""
    keys, is_new = open_keys(settings.data_dir, api_key=settings.api_key, api_key_file=settings.api_key_file)
    if settings.no_auth and settings.host not in ("127.0.0.1", "::1", "localhost"):
        log.warning("no_auth on %s: whoever reaches this address may use the model without a key", settings.host)
    if is_new:
        log.info("new keys are in %s", settings.data_dir / "keys")
    metrics = Metrics(prepared.model.id)
    supervisor = Supervisor(prepared.worker)
    dispatcher = Dispatcher(supervisor, max_queue=settings.max_queue, queue_timeout=settings.queue_timeout)
    renderer = Renderer()
    admission = Admission(
        prepared.text, renderer, n_ctx=prepared.n_ctx, defaults=settings.sampling(), n_predict=settings.n_predict
    )
    services = Services(
        settings=settings, model=prepared.model, admission=admission, dispatcher=dispatcher, supervisor=supervisor,
        keys=keys, metrics=metrics, body_cap=body_cap(prepared.n_ctx),
    )  # fmt: skip
    await supervisor.start()
    warming = asyncio.create_task(admission.warm())
    try:
        yield services
    finally:
        warming.cancel()
        await supervisor.stop()
        await dispatcher.close()
        await renderer.close()
        admission.close()


@contextlib.asynccontextmanager
async def listening(app: web.Application, door: socket.socket) -> AsyncIterator[None]:
    """Accept connections with our own protocol class; a client that leaves cancels its handler."""
    runner = web.AppRunner(app, handler_cancellation=True, **LIMITS)
    await runner.setup()
    manager = runner.server
    assert manager is not None
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(manager, loop=loop, **LIMITS), sock=door, backlog=BACKLOG)
    try:
        yield
    finally:
        server.close()
        await runner.cleanup()


async def _drain(services: Services, stop: "_Signals") -> None:
    """Let answers under way end, for DRAIN_S or until a second signal; break off the rest with a clean error."""
    services.draining = True
    hurry = asyncio.create_task(stop.second())
    deadline = asyncio.get_running_loop().time() + DRAIN_S
    while services.generations.running() and not hurry.done() and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.05)
    hurry.cancel()
    if services.generations.running():
        cut = Draining("the server was stopped before the answer was complete", retry_after_s=10)
        await services.generations.close(cut)
        # Their handlers have an error event to write.
        await asyncio.sleep(0.2)


class _Signals:
    """SIGTERM and SIGINT as something to wait for."""

    def __init__(self) -> None:
        self._seen: asyncio.Queue[int] = asyncio.Queue()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._seen.put_nowait, int(number))

    async def first(self) -> int:
        return await self._seen.get()

    async def second(self) -> int:
        return await self._seen.get()
